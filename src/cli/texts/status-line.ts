/** One line on stderr that says what a command is doing. Nothing is shown if stderr is no terminal. */

const eraseLine = "\r\u001b[K";

export class StatusLine {
  readonly #isShown = process.stderr.isTTY;
  #hasText = false;

  /** Replaces the line. */
  show(text: string): void {
    if (!this.#isShown) return;
    process.stderr.write(`${eraseLine}${text}`);
    this.#hasText = true;
  }

  /** Erases the line. */
  clear(): void {
    if (this.#hasText) process.stderr.write(eraseLine);
    this.#hasText = false;
  }

  /** Prints a message that stays, on any stderr. */
  print(text: string): void {
    this.clear();
    process.stderr.write(text);
  }

  /** Erases the line, and leaves a last one. */
  end(text?: string): void {
    this.clear();
    if (this.#isShown && text !== undefined) process.stderr.write(`${text}\n`);
  }
}
