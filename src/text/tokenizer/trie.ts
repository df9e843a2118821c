/** Tokens by their characters. Nodes are numbers, and edges are pairs of a node and a UTF-16 unit. */

import { HoldfastError } from "../../errors/index.js";
import { PairTable } from "./pair-table.js";

const maxNodes = 1 << 22;

export class Trie {
  readonly #edges = new PairTable(64);
  readonly #idAt: number[] = [-1];
  readonly #file: string;

  /** `file`: for errors. */
  constructor(file: string) {
    this.#file = file;
  }

  add(token: string, id: number): void {
    let node = 0;
    for (let at = 0; at < token.length; at++) {
      const unit = token.charCodeAt(at);
      let child = this.#edges.get(node, unit);
      if (child < 0) {
        child = this.#idAt.length;
        if (child >= maxNodes) throw tooLarge(this.#file);
        this.#idAt.push(-1);
        this.#edges.set(node, unit, child);
      }
      node = child;
    }
    this.#idAt[node] = id;
  }

  /** Calls back with the end and the id of each token that starts at a position, the shortest first. */
  eachPrefix(text: string, start: number, found: (end: number, id: number) => void): void {
    let node = 0;
    for (let at = start; at < text.length; at++) {
      node = this.#edges.get(node, text.charCodeAt(at));
      if (node < 0) return;
      const id = this.#idAt[node] ?? -1;
      if (id >= 0) found(at + 1, id);
    }
  }
}

function tooLarge(file: string): HoldfastError {
  return new HoldfastError(
    "BAD_FILE",
    `${file}: its tokens have more than ${maxNodes} different beginnings. It is damaged, or not a tokenizer.`,
    { numbers: { file } },
  );
}
