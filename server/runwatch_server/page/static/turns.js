// Answers in the order of their questions: an old one that comes late is not shown over a newer one.

export class Turns {
  #asked = 0;
  #shown = 0;

  /** For a question that is asked now: a function that says, when its answer has come, whether it
      is to be shown. */
  ask() {
    const own = this.#asked += 1;
    return () => {
      if (own < this.#shown) return false;
      this.#shown = own;
      return true;
    };
  }
}
