/** RequestError: a request that is rejected, or a text that failed. Its body is that of OpenAI's API. */

import { HoldfastError } from "../errors/index.js";

export type ErrorStatus = 400 | 401 | 403 | 404 | 405 | 408 | 413 | 415 | 429 | 431 | 500 | 503 | 504;

export interface ErrorDetails {
  /** The field that is wrong. */
  readonly param?: string;
  /** A word for programs. */
  readonly code?: string;
  /** When to send the request again. */
  readonly retryAfterS?: number;
}

export class RequestError extends Error {
  readonly status: ErrorStatus;
  readonly details: ErrorDetails;

  constructor(status: ErrorStatus, message: string, details: ErrorDetails = {}) {
    super(message);
    this.status = status;
    this.details = details;
  }
}

/** The body of an answer. */
export function errorBody({ status, message, details }: RequestError): unknown {
  const { param = null, code = null } = details;
  return { error: { message, type: typeOf(status), param, code } };
}

function typeOf(status: ErrorStatus): string {
  if (status === 429) return "rate_limit_error";
  if (status === 401) return "authentication_error";
  return status >= 500 ? "server_error" : "invalid_request_error";
}

/** Any error as an answer: what Holdfast rejects is the request's fault, anything else the server's. */
export function toRequestError(error: unknown, param?: string): RequestError {
  if (error instanceof RequestError) return error;
  const isRejected = error instanceof HoldfastError && param !== undefined;
  if (isRejected) return new RequestError(400, error.message, { param });
  const code = error instanceof HoldfastError ? error.code.toLowerCase() : "internal_error";
  const message = error instanceof Error ? (error.message.split("\n")[0] ?? "") : String(error);
  return new RequestError(500, message, { code });
}
