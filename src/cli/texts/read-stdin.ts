/** Reads a prompt from stdin, within a limit. */

import { HoldfastError } from "../../errors/index.js";
import { MiB } from "../../units/index.js";

const maxBytes = 16 * MiB;

/** All of stdin as text, without the line break at its end. Aborting ends it with an error. */
export async function readStdin(signal: AbortSignal): Promise<string> {
  const { stdin } = process;
  if (stdin.isTTY)
    throw new HoldfastError(
      "BAD_ARGUMENT",
      "There is no prompt. Pass --prompt TEXT, or pipe a text to stdin.",
    );
  const stop = (): void => void stdin.destroy();
  signal.addEventListener("abort", stop, { once: true });
  const chunks: Buffer[] = [];
  let bytes = 0;
  try {
    for await (const chunk of stdin as AsyncIterable<Buffer>) {
      bytes += chunk.length;
      if (bytes > maxBytes) {
        throw new HoldfastError(
          "BAD_ARGUMENT",
          `The prompt on stdin has more than ${maxBytes} bytes. Pass a shorter one.`,
          {
            numbers: { maxBytes },
          },
        );
      }
      chunks.push(chunk);
    }
  } finally {
    signal.removeEventListener("abort", stop);
  }
  return Buffer.concat(chunks)
    .toString("utf8")
    .replace(/\r?\n$/, "");
}
