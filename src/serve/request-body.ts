/** Reads the body of a request: JSON, within limits of bytes, values and depth. */

import type { IncomingMessage } from "node:http";
import { exceededLimit, JsonField } from "../text/index.js";
import { RequestError } from "./request-error.js";

const jsonLimits = { maxContainers: 20_000, maxValues: 500_000, maxDepth: 32 };

/** The bytes of all bodies that are being read. */
export class BodyReader {
  readonly #maxBytes: number;
  readonly #maxTotalBytes: number;
  #totalBytes = 0;

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
    this.#maxTotalBytes = Math.max(32 * 2 ** 20, 4 * maxBytes);
  }

  /** The object of a request's body. */
  async read(request: IncomingMessage): Promise<JsonField> {
    const { headers } = request;
    if (!/^application\/json\s*(;|$)/i.test(headers["content-type"] ?? ""))
      throw new RequestError(415, "Send the body with the header Content-Type: application/json.");
    if (Number(headers["content-length"] ?? 0) > this.#maxBytes) throw this.#tooLarge();
    let bytes = 0;
    const chunks: Buffer[] = [];
    try {
      for await (const chunk of request as AsyncIterable<Buffer>) {
        bytes += chunk.length;
        this.#totalBytes += chunk.length;
        if (bytes > this.#maxBytes) throw this.#tooLarge();
        if (this.#totalBytes > this.#maxTotalBytes)
          throw new RequestError(503, "Too many requests are arriving. Try again.", { retryAfterS: 1 });
        chunks.push(chunk);
      }
    } finally {
      this.#totalBytes -= bytes;
    }
    return parseBody(Buffer.concat(chunks));
  }

  #tooLarge(): RequestError {
    return new RequestError(413, `The body is larger than ${this.#maxBytes} bytes. Send a shorter prompt.`);
  }
}

function parseBody(bytes: Buffer): JsonField {
  const exceeded = exceededLimit(bytes, jsonLimits);
  if (exceeded) {
    const { found, limit, unit } = exceeded;
    throw new RequestError(400, `The body has ${found} ${unit}; the maximum is ${limit}.`);
  }
  let value: unknown;
  try {
    value = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes));
  } catch (error) {
    const why = error instanceof Error ? error.message.slice(0, 120) : String(error);
    throw new RequestError(400, `The body is not JSON: ${why}.`);
  }
  return new RequestField(value, "");
}

/** A field of a request. Its errors name it. */
class RequestField extends JsonField {
  constructor(value: unknown, path: string) {
    super(value, "the body", path);
  }

  protected override at(value: unknown, path: string): JsonField {
    return new RequestField(value, path);
  }

  override wrong(expected: string): Error {
    const { path } = this;
    return new RequestError(400, `${path || "The body"} must be ${expected}, but is ${this.shown}.`, {
      ...(path !== "" && { param: path }),
    });
  }
}
