/** What the threads of ranks send each other: lines of JSON over TCP, between every rank and the hub in rank 0's process. */

/** Ranks with other messages are rejected. Raise it with every change of the messages. */
export const protocolVersion = 2;

/** Who a rank is. */
export interface RankIdentity {
  readonly rank: number;
  readonly size: number;
  readonly host: string;
  readonly pid: number;
}

/** What a rank does at the moment. */
export interface RankStatus {
  /** Rises whenever the rank's main thread does something. */
  readonly progress: number;
  /** The engine's open phases, such as "step 12", or what a program does between them. */
  readonly doing: string;
  /** The number of collectives that it has begun. */
  readonly sequence: number;
  /** The collective in which it waits for the others. */
  readonly waitsIn?: string | undefined;
  /** It waits for its GPU, which may wait for the others in a collective, or work. */
  readonly waitsForGpu?: boolean | undefined;
}

export type ToHub =
  | ({ readonly type: "hello"; readonly protocol: number; readonly token: string } & RankIdentity)
  | ({ readonly type: "status" } & RankStatus)
  | { readonly type: "offer"; readonly name: string; readonly value: unknown }
  /** An error ends the rank. */
  | { readonly type: "failed"; readonly message: string }
  | { readonly type: "bye" };

/** A rank on which the others need not wait any more. */
export interface LostRank {
  readonly rank: number;
  readonly host: string;
  readonly pid: number;
  /** A sentence without the rank: "its process has ended". */
  readonly why: string;
  readonly doing: string;
}

/** Why the ranks can't go on: some are lost, or they do different work. */
export type Failure = "lost" | "differ";

export type FromHub =
  /** All ranks are connected. */
  | { readonly type: "welcome"; readonly ranks: readonly RankIdentity[] }
  | { readonly type: "rejected"; readonly why: string }
  /** What all ranks have offered, in the order of ranks. */
  | { readonly type: "values"; readonly values: readonly unknown[] }
  /** Ranks offered values for different purposes. */
  | { readonly type: "differ"; readonly names: readonly string[] }
  /** The hub is alive. `progress` rises when a rank on which others wait has done something. */
  | { readonly type: "tick"; readonly progress: number }
  | { readonly type: "failure"; readonly what: Failure; readonly ranks: readonly LostRank[] }
  /** Every rank has said goodbye. */
  | { readonly type: "end" };

/** A line may not be longer: the sender is none of ours, or broken. */
export const maxLineBytes = 64 * 2 ** 20;

/** Collects lines from the chunks of a connection. */
export class LineReader {
  #chunks: Buffer[] = [];
  #bytes = 0;

  /** The messages that the chunk completes. Throws if a line is too long or no JSON object. */
  push(chunk: Buffer): unknown[] {
    const messages: unknown[] = [];
    let start = 0;
    for (let end = chunk.indexOf(10); end >= 0; end = chunk.indexOf(10, start)) {
      this.#add(chunk.subarray(start, end));
      messages.push(JSON.parse(Buffer.concat(this.#chunks).toString("utf8")));
      this.#chunks = [];
      this.#bytes = 0;
      start = end + 1;
    }
    this.#add(chunk.subarray(start));
    return messages;
  }

  #add(part: Buffer): void {
    this.#bytes += part.length;
    if (this.#bytes > maxLineBytes) throw new Error(`a message has more than ${maxLineBytes} bytes`);
    if (part.length > 0) this.#chunks.push(part);
  }
}

export function toLine(message: ToHub | FromHub): string {
  return `${JSON.stringify(message)}\n`;
}
