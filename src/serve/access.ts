/**
 * Who may send requests. Without a token, a request must name this machine in its Host header and come from no other site's page: otherwise
 * any page in a browser on this machine could use the model. With a token, the token is enough, so a proxy may pass on other host names.
 */

import type { IncomingMessage } from "node:http";
import { bearerOf, hostsIn, isCrossSite, isSameToken } from "../http/index.js";
import { RequestError } from "./request-error.js";

export interface AccessRules {
  /** The accepted Host headers, with the port. */
  readonly hosts: ReadonlySet<string>;
  readonly token: string | undefined;
}

/** Throws if the sender may not use the model. */
export function requireAccess({ hosts, token }: AccessRules, request: IncomingMessage): void {
  const [host = "", ...others] = hostsIn(request);
  if (others.length > 0) throw new RequestError(400, "The request has several Host headers. Send one.");
  if (token === undefined) {
    if (!hosts.has(host)) {
      const names = [...hosts].slice(0, 3).join(", ");
      throw new RequestError(
        403,
        `The Host header does not name this server. Use ${names}, or start the server with a token.`,
      );
    }
    if (isCrossSite(request, host)) throw new RequestError(403, "Requests from other sites are rejected.");
    return;
  }
  const presented = bearerOf(request);
  if (presented === undefined) {
    throw new RequestError(401, "A token is required: Authorization: Bearer TOKEN.", {
      code: "invalid_api_key",
    });
  }
  if (!isSameToken(presented, token))
    throw new RequestError(401, "The token is wrong.", { code: "invalid_api_key" });
}
