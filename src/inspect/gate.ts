/**
 * Who is let in. A page in somebody's browser may send requests here without its user's will: under another name for this address,
 * or from another site. So a request must name this server as its host, come from its own page, carry the token where there is
 * one, and only read.
 */

import { createHash, randomBytes, timingSafeEqual } from "node:crypto";
import type { IncomingMessage } from "node:http";
import { hostsIn, hostsOf } from "../train/index.js";

export const maxUrlLength = 4096;

/** Why a request is rejected, as HTTP tells it and in one line. */
export interface Rejection {
  readonly status: 400 | 401 | 403 | 404 | 405 | 413 | 414 | 431 | 503;
  readonly error: string;
}

export interface Gate {
  /** The hosts that a request may name, each with the port. */
  readonly hosts: ReadonlySet<string>;
  /** Undefined where none is asked for. */
  readonly token: string | undefined;
  /** A cookie is sent to every port of a host, so it is named by the port. */
  readonly cookie: string;
}

export function makeGate(address: string, port: number, token: string | undefined): Gate {
  return { hosts: hostsOf(address, port), token, cookie: `holdfast-inspect-${port}` };
}

export function makeToken(): string {
  return randomBytes(24).toString("base64url");
}

/** What is wrong with a request; undefined where it may be answered. The token is looked at by `hasToken`. */
export function reject(gate: Gate, request: IncomingMessage): Rejection | undefined {
  const { method = "", url = "", headers } = request;
  const [host = "", ...others] = hostsIn(request);
  if (others.length > 0) return { status: 400, error: "The request has several Host headers. Send one." };
  if (!gate.hosts.has(host)) {
    const names = [...gate.hosts].slice(0, 3).join(", ");
    return { status: 403, error: `This server is not asked for by that host name; it is ${names}.` };
  }
  const { origin } = headers;
  if (origin !== undefined && origin.toLowerCase() !== `http://${host}`)
    return { status: 403, error: "Requests of other sites are rejected." };
  const isForeign = ["cross-site", "same-site"].includes(String(headers["sec-fetch-site"]));
  if (isForeign && headers["sec-fetch-mode"] !== "navigate")
    return { status: 403, error: "Requests of other sites are rejected." };
  if (method !== "GET" && method !== "HEAD")
    return { status: 405, error: "This server is read-only: it answers GET and HEAD." };
  if (url.length > maxUrlLength)
    return { status: 414, error: `The address is longer than ${maxUrlLength} characters.` };
  if (headers["transfer-encoding"] !== undefined || Number(headers["content-length"] ?? 0) !== 0)
    return { status: 413, error: "This server takes no bodies." };
  if (!url.startsWith("/")) return { status: 400, error: "The address does not begin with a slash." };
  return undefined;
}

export interface TokenCheck {
  readonly isGood: boolean;
  /** It stood in the address: the answer sets the cookie, so that it need not stand there again. */
  readonly isFromUrl: boolean;
}

export function checkToken(gate: Gate, request: IncomingMessage, query: URLSearchParams): TokenCheck {
  const { token } = gate;
  if (token === undefined) return { isGood: true, isFromUrl: false };
  const { authorization = "", cookie = "" } = request.headers;
  const bearer = /^Bearer +(\S+)$/i.exec(authorization)?.[1];
  const kept = cookie
    .split(";")
    .map((part) => part.trim())
    .find((part) => part.startsWith(`${gate.cookie}=`))
    ?.slice(gate.cookie.length + 1);
  const given = query.get("token");
  const isFromUrl = given !== null && isSame(given, token);
  const isGood = isFromUrl || [bearer, kept].some((one) => one !== undefined && isSame(one, token));
  return { isGood, isFromUrl };
}

export function cookieOf({ cookie, token = "" }: Gate): string {
  return `${cookie}=${token}; HttpOnly; SameSite=Strict; Path=/`;
}

/** Takes as long for any text: digests of both are compared, which are of one length. */
function isSame(given: string, token: string): boolean {
  const digest = (text: string): Buffer => createHash("sha256").update(text).digest();
  return timingSafeEqual(digest(given), digest(token));
}

/** What may be a token: it travels in addresses and cookies. */
export function isToken(text: string): boolean {
  return /^[\w.~-]{8,200}$/.test(text);
}
