/** Answers requests that Node could not read: no HTTP, headers that are too large, or a client that is too slow. */

import type { Server } from "node:http";
import type { Socket } from "node:net";

export interface BrokenRequest {
  readonly status: 400 | 408 | 431;
  readonly error: string;
}

const reasons = {
  400: "Bad Request",
  408: "Request Timeout",
  431: "Request Header Fields Too Large",
} as const;

/** `bodyOf` is the JSON of an answer. */
export function answerBrokenRequests(
  server: Server,
  maxHeaderBytes: number,
  bodyOf: (broken: BrokenRequest) => unknown,
): void {
  server.on("clientError", ({ code }: NodeJS.ErrnoException, socket: Socket) => {
    const broken = brokenBy(code, maxHeaderBytes);
    // After the answer is sent the connection is closed, even if the client keeps sending.
    if (socket.writable && code !== "ECONNRESET") socket.end(rawAnswer(broken, bodyOf(broken)));
    socket.destroySoon();
  });
}

function brokenBy(code: string | undefined, maxHeaderBytes: number): BrokenRequest {
  if (code === "HPE_HEADER_OVERFLOW")
    return { status: 431, error: `The request headers are larger than ${maxHeaderBytes} bytes.` };
  if (code === "ERR_HTTP_REQUEST_TIMEOUT")
    return { status: 408, error: "The request took too long to arrive." };
  return { status: 400, error: "The request is not valid HTTP." };
}

function rawAnswer({ status }: BrokenRequest, body: unknown): string {
  const content = JSON.stringify(body);
  const head = [
    `HTTP/1.1 ${status} ${reasons[status]}`,
    "Content-Type: application/json; charset=utf-8",
    `Content-Length: ${Buffer.byteLength(content)}`,
    "Connection: close",
  ];
  return `${head.join("\r\n")}\r\n\r\n${content}`;
}
