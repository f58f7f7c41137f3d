// Asking the service. A refusal becomes an ApiError that carries the problem (RFC 9457).

/** How long the answer to a question is waited for: curves of a long run may take a while. */
const LONGEST_MS = 60_000;

/** Where the page secret is, which a session needs beside its cookie. A browser sends a cookie to
    every port of a host; storage is of this port alone. It is shared by our tabs, as the cookie is:
    sessionStorage would be empty in a tab that a link in a message opens. */
const PAGE_SECRET = "runwatch.page-secret";

export const pageSecret = () => localStorage.getItem(PAGE_SECRET) ?? "";
export const keepPageSecret = (secret) => localStorage.setItem(PAGE_SECRET, secret);
export const forgetPageSecret = () => localStorage.removeItem(PAGE_SECRET);

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
/** The stretches of a run's history and its ranks; but for stretches beyond many large answers. */
export async function historyOf(run) {
  const history = await getJson(`/runs/${run}/history`);
  for (let parts = 1; history.next_token && parts < 20; parts++) {
    const { stretches, next_token } = await getJson(`/runs/${run}/history?next_token=${history.next_token}`);
    history.stretches.push(...stretches);
    history.next_token = next_token;
  }
  return history;
}

export const postJson = (path, body = {}, options) => api("POST", path, { body, ...options });

/** The JSON of an answer to a request under /api/v1, or null where it has none. `body`: an object,
    or a string with its `type`. `headers` with a key in Authorization: that is asked, whoever is
    logged in. */
export async function api(method, path, { body, type, headers = {}, signal } = {}) {
  const isText = typeof body === "string";
  const answer = await reach(`/api/v1${path}`, {
    method,
    signal: signal ?? (method === "GET" ? atLongest() : undefined),
    headers: {
      Accept: "application/json",
      "X-Page-Secret": pageSecret(),
      ...(body === undefined ? {} : { "Content-Type": type ?? "application/json" }),
      ...headers,
    },
    body: body === undefined || isText ? body : JSON.stringify(body),
  });
  if (answer.ok) return answer.status === 204 ? null : answer.json().catch(unread);
  if (answer.status === 401 && !headers.Authorization) toLogin();
  throw new ApiError(await problemOf(answer));
}

/** Headers that ask with a key instead of the login. */
export const withKey = (text) => ({ Authorization: `Bearer ${text.trim()}` });

/** An answer, whatever it is. Raises ApiError where there is none. */
export const reach = (path, options) => fetch(path, options).catch(unreached);

/** Ends a question that nobody answers: a service that stands still, and a way to it that is cut
    without a word, say nothing at all. */
export const atLongest = (ms = LONGEST_MS) => AbortSignal.timeout(ms);

function unreached(error) {
  if (error.name === "AbortError") throw error;
  throw new ApiError({ title: "Unreachable", status: 0, code: "unreachable",
    detail: "The service cannot be reached. Is it running?" });
}

/** A SyntaxError tells that all of it came; else the way broke off while it did. */
function unread(error) {
  if (error.name !== "SyntaxError") unreached(error);
  throw new ApiError({ title: "Unreadable", status: 0, code: "unreadable",
    detail: "What came is no answer of the service. Does a proxy answer in its place?" });
}

/** The problem of a refusal; one of a proxy's own is no problem of ours, whatever its form. */
async function problemOf(answer) {
  const problem = await answer.json().catch(() => null);
  if (typeof problem?.title === "string") return problem;
  const title = answer.statusText || `Refused (HTTP ${answer.status})`;
  return { title, status: answer.status, code: "unknown", detail: "" };
}

export function toLogin() {
  location.assign(`/login?next=${encodeURIComponent(location.pathname + location.search)}`);
}
