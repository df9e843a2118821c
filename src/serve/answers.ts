/** The answers to requests for texts: one object, or a stream of chunks, as OpenAI's API defines them. */

import { randomBytes } from "node:crypto";
import type { RequestKind } from "./text-request.js";

/** The numbers of tokens of a request. */
export interface Usage {
  readonly prompt: number;
  readonly completion: number;
}

/** A finished text. */
export interface Choice {
  readonly text: string;
  readonly finishReason: string;
}

/** Writes the answers of one request. */
export class Answers {
  readonly #kind: RequestKind;
  readonly #model: string;
  readonly #id: string;
  readonly #created = Math.floor(Date.now() / 1000);

  constructor(kind: RequestKind, model: string) {
    this.#kind = kind;
    this.#model = model;
    this.#id = `${kind === "chat" ? "chatcmpl" : "cmpl"}-${randomBytes(12).toString("hex")}`;
  }

  /** The whole answer. */
  whole(choices: readonly Choice[], usage: Usage): unknown {
    const body = choices.map(({ text, finishReason }, index) => ({
      index,
      ...(this.#kind === "chat"
        ? { message: { role: "assistant", content: text, refusal: null } }
        : { text }),
      logprobs: null,
      finish_reason: finishReason,
    }));
    return { ...this.#head(""), choices: body, usage: usageOf(usage) };
  }

  /** The first chunk of a text; undefined if there is none. */
  begin(index: number): unknown {
    if (this.#kind !== "chat") return undefined;
    return this.#chunk(index, { delta: { role: "assistant", content: "" } }, null);
  }

  piece(index: number, text: string): unknown {
    return this.#chunk(index, this.#kind === "chat" ? { delta: { content: text } } : { text }, null);
  }

  end(index: number, finishReason: string): unknown {
    return this.#chunk(index, this.#kind === "chat" ? { delta: {} } : { text: "" }, finishReason);
  }

  /** The last chunk of a stream with usage. */
  usage(usage: Usage): unknown {
    return { ...this.#head(".chunk"), choices: [], usage: usageOf(usage) };
  }

  #chunk(index: number, content: object, finishReason: string | null): unknown {
    const choice = { index, ...content, logprobs: null, finish_reason: finishReason };
    return { ...this.#head(".chunk"), choices: [choice] };
  }

  #head(chunk: string): object {
    const object = this.#kind === "chat" ? `chat.completion${chunk}` : "text_completion";
    return { id: this.#id, object, created: this.#created, model: this.#model };
  }
}

function usageOf({ prompt, completion }: Usage): unknown {
  return { prompt_tokens: prompt, completion_tokens: completion, total_tokens: prompt + completion };
}

/** An event of a stream. */
export function event(data: unknown): string {
  return `data: ${JSON.stringify(data)}\n\n`;
}

/** The last event of a stream. */
export const doneEvent = "data: [DONE]\n\n";
