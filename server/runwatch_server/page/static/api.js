// Asking the service. A refusal becomes an ApiError that carries the problem (RFC 9457).

const csrf = document.querySelector("meta[name=csrf]")?.content ?? "";

export class ApiError extends Error {
  /** `problem` has title, status, code, detail, and faults of a rule file. */
  constructor(problem) {
    super(problem.detail || problem.title);
    this.problem = problem;
    this.title = problem.title;
    this.detail = problem.detail ?? "";
  }
}

export const getJson = (path, options) => api("GET", path, options);
export const postJson = (path, body = {}, options) => api("POST", path, { body, ...options });

/** The JSON of an answer to a request under /api/v1, or null where it has none. `body`: an object,
    or a string with its `type`. */
export async function api(method, path, { body, type, headers = {}, signal } = {}) {
  const isText = typeof body === "string";
  const answer = await reach(`/api/v1${path}`, {
    method,
    signal,
    headers: {
      Accept: "application/json",
      ...(method === "GET" ? {} : { "X-CSRF-Token": csrf }),
      ...(body === undefined ? {} : { "Content-Type": type ?? "application/json" }),
      ...headers,
    },
    body: body === undefined || isText ? body : JSON.stringify(body),
  });
  if (answer.ok) return answer.status === 204 ? null : answer.json();
  if (answer.status === 401) toLogin();
  throw new ApiError(await problemOf(answer));
}

/** An answer, whatever it is. Raises ApiError where there is none. */
export async function reach(path, options) {
  try {
    return await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError({ title: "Unreachable", status: 0, code: "unreachable",
      detail: "The service cannot be reached. Is it running?" });
  }
}

async function problemOf(answer) {
  try {
    return await answer.json();
  } catch {
    return { title: answer.statusText, status: answer.status, code: "unknown", detail: "" };
  }
}

function toLogin() {
  location.assign(`/login?next=${encodeURIComponent(location.pathname + location.search)}`);
}
