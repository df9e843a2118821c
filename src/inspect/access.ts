/**
 * Access control. A web page in a user's browser could send requests here: under another host name for this address, or from another
 * site. So a request must be read-only, name this server in its Host header, and come from the server's page. It must carry the
 * token if the server has one.
 */

import type { IncomingMessage } from "node:http";
import { bearerOf, hostsIn, hostsOf, isCrossSite, isSameToken } from "../http/index.js";

export const maxUrlLength = 4096;

/** A rejected request: the HTTP status and a one-line reason. */
export interface Rejection {
  readonly status: 400 | 401 | 403 | 404 | 405 | 413 | 414 | 503;
  readonly error: string;
}

export interface AccessPolicy {
  /** The accepted Host headers, with the port. */
  readonly hosts: ReadonlySet<string>;
  /** Undefined if no token is required. */
  readonly token: string | undefined;
  /** The cookie's name contains the port, because browsers send a cookie to every port of a host. */
  readonly cookie: string;
}

export function makeAccessPolicy(address: string, port: number, token: string | undefined): AccessPolicy {
  return { hosts: hostsOf(address, port), token, cookie: `holdfast-inspect-${port}` };
}

/** The reason to reject a request; undefined if it is accepted. `checkToken` checks the token. */
export function rejectionOf(policy: AccessPolicy, request: IncomingMessage): Rejection | undefined {
  const { method = "", url = "", headers } = request;
  const [host = "", ...others] = hostsIn(request);
  if (others.length > 0) return { status: 400, error: "The request has several Host headers. Send one." };
  if (!policy.hosts.has(host)) {
    const names = [...policy.hosts].slice(0, 3).join(", ");
    return { status: 403, error: `The Host header does not name this server. Use ${names}.` };
  }
  if (isCrossSite(request, host)) return { status: 403, error: "Requests from other sites are rejected." };
  if (method !== "GET" && method !== "HEAD")
    return { status: 405, error: "This server is read-only: it answers GET and HEAD." };
  if (url.length > maxUrlLength)
    return { status: 414, error: `The address is longer than ${maxUrlLength} characters.` };
  if (headers["transfer-encoding"] !== undefined || Number(headers["content-length"] ?? 0) !== 0)
    return { status: 413, error: "This server accepts no request bodies." };
  if (!url.startsWith("/")) return { status: 400, error: "The address must start with a slash." };
  return undefined;
}

export interface TokenCheck {
  readonly isValid: boolean;
  /** True if the token was in the address: the answer then sets the cookie. */
  readonly isFromUrl: boolean;
}

export function checkToken(
  policy: AccessPolicy,
  request: IncomingMessage,
  query: URLSearchParams,
): TokenCheck {
  const { token } = policy;
  if (token === undefined) return { isValid: true, isFromUrl: false };
  const { cookie = "" } = request.headers;
  const cookieToken = cookie
    .split(";")
    .map((pair) => pair.trim())
    .find((pair) => pair.startsWith(`${policy.cookie}=`))
    ?.slice(policy.cookie.length + 1);
  const presented = query.get("token");
  const isFromUrl = presented !== null && isSameToken(presented, token);
  const isValid =
    isFromUrl ||
    [bearerOf(request), cookieToken].some(
      (candidate) => candidate !== undefined && isSameToken(candidate, token),
    );
  return { isValid, isFromUrl };
}

export function cookieOf({ cookie, token = "" }: AccessPolicy): string {
  return `${cookie}=${token}; HttpOnly; SameSite=Strict; Path=/`;
}
