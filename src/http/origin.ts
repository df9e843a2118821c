/** Requests that a web page of another site sends, through the browser of a user who can reach this server. */

import type { IncomingMessage } from "node:http";

/** True if a browser says that another site's page sent the request. Following a link to this server is no such request. */
export function isCrossSite({ headers }: Pick<IncomingMessage, "headers">, host: string): boolean {
  const { origin } = headers;
  if (origin !== undefined && origin.toLowerCase() !== `http://${host}`) return true;
  const isForeign = ["cross-site", "same-site"].includes(String(headers["sec-fetch-site"]));
  return isForeign && headers["sec-fetch-mode"] !== "navigate";
}
