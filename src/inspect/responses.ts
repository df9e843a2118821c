/** Sends HTTP responses: headers, bodies, streams, and errors as one line of JSON. */

import type { IncomingMessage, ServerResponse } from "node:http";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import type { Rejection } from "./access.js";

/** A body: complete, or generated chunk by chunk as the client reads. */
export interface Body {
  readonly type: string;
  readonly content: string | Uint8Array | Iterable<string | Uint8Array>;
  /** The file name of a download; default: shown in the browser. */
  readonly saveAs?: string;
  readonly headers?: Readonly<Record<string, string>>;
}

export const jsonType = "application/json; charset=utf-8";

/** On every response: no use by other sites, no MIME sniffing. */
export const safeHeaders = {
  "Cache-Control": "no-store",
  "Cross-Origin-Opener-Policy": "same-origin",
  "Cross-Origin-Resource-Policy": "same-origin",
  "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
  "Referrer-Policy": "no-referrer",
  "X-Content-Type-Options": "nosniff",
  "X-Frame-Options": "DENY",
} as const;

export async function send(
  request: IncomingMessage,
  response: ServerResponse,
  { type, content, saveAs, headers }: Body,
): Promise<void> {
  const isWhole = typeof content === "string" || content instanceof Uint8Array;
  response.writeHead(200, {
    ...safeHeaders,
    "Content-Type": type,
    ...(saveAs !== undefined && { "Content-Disposition": `attachment; filename="${fileNameOf(saveAs)}"` }),
    ...(isWhole && { "Content-Length": Buffer.byteLength(content) }),
    ...headers,
  });
  if (request.method === "HEAD") response.end();
  else if (isWhole) response.end(content);
  else await pipeline(Readable.from(content), response);
}

/** Numbers that JSON can't express become null. */
export function json(value: unknown): Body {
  return { type: jsonType, content: JSON.stringify(value) };
}

/** Closes the connection if the rest of the request must not be read. */
export function sendRejection(response: ServerResponse, { status, error }: Rejection): void {
  const content = JSON.stringify({ error });
  response.writeHead(status, {
    ...safeHeaders,
    "Content-Type": jsonType,
    "Content-Length": Buffer.byteLength(content),
    ...(status === 405 && { Allow: "GET, HEAD" }),
    ...(status === 401 && { "WWW-Authenticate": "Bearer" }),
    ...((status === 405 || status === 413 || status === 414) && { Connection: "close" }),
  });
  response.end(response.req.method === "HEAD" ? undefined : content);
}

/** Keeps the characters that are safe in a header and in a file name. */
function fileNameOf(text: string): string {
  return text.replaceAll(/[^\w.-]+/g, "_").slice(-120);
}
