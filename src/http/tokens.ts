/** Tokens of a server: a secret that every request must carry. */

import { createHash, randomBytes, timingSafeEqual } from "node:crypto";
import type { IncomingMessage } from "node:http";
import { HoldfastError } from "../errors/index.js";

export function makeToken(): string {
  return randomBytes(24).toString("base64url");
}

/** Throws if a token is not safe in addresses, headers and cookies. */
export function requireToken(token: string): string {
  if (/^[\w.~-]{8,200}$/.test(token)) return token;
  throw new HoldfastError(
    "BAD_ARGUMENT",
    `The token is invalid (${token.length} characters). A token has 8 to 200 letters, digits and "._~-".`,
  );
}

/** The token in the header `Authorization: Bearer …`. */
export function bearerOf({ headers }: Pick<IncomingMessage, "headers">): string | undefined {
  return /^Bearer +(\S+)$/i.exec(headers.authorization ?? "")?.[1];
}

/** A comparison in constant time, by digests of equal length. */
export function isSameToken(presented: string, token: string): boolean {
  const digest = (text: string): Buffer => createHash("sha256").update(text).digest();
  return timingSafeEqual(digest(presented), digest(token));
}
