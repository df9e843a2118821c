/**
 * Checks the Host header against DNS rebinding: a web page can reach a local server under the page's own host name. Such
 * requests are rejected.
 */

import type { IncomingMessage } from "node:http";
import { isIP, isIPv6 } from "node:net";
import { hostname, networkInterfaces } from "node:os";

export function isLoopback(address: string): boolean {
  return address === "localhost" || address === "::1" || /^127\.\d{1,3}\.\d{1,3}\.\d{1,3}$/.test(address);
}

/** An address as it stands in a URL. */
export function urlHost(address: string, port: number): string {
  return `${isIPv6(address) ? `[${address}]` : address}:${port}`;
}

/** Whether a server can listen at this text: an IP address or a host name. An empty text would mean every address. */
export function isAddress(text: string): boolean {
  return isIP(text) !== 0 || /^[a-z\d]([a-z\d.-]*[a-z\d])?$/i.test(text);
}

/** The hosts that requests to this address name, with the port. A server at every address is named by any of them. */
export function hostsOf(address: string, port: number): ReadonlySet<string> {
  const isEvery = address === "0.0.0.0" || address === "::";
  const own = isEvery
    ? [
        hostname(),
        ...Object.values(networkInterfaces()).flatMap((list) => (list ?? []).map((one) => one.address)),
      ]
    : [address];
  const local = isEvery || isLoopback(address) ? ["localhost", "127.0.0.1", "::1"] : [];
  const names = [...own, ...local].map((one) => urlHost(one, port).toLowerCase());
  // Clients leave out the port that HTTP has by default.
  return new Set(port === 80 ? [...names, ...names.map((name) => name.slice(0, -":80".length))] : names);
}

/**
 * The hosts that a request names, in small letters. More than one is a reason to reject it: Node shows the first, and a proxy
 * may have looked at another.
 */
export function hostsIn({ headersDistinct }: Pick<IncomingMessage, "headersDistinct">): readonly string[] {
  return (headersDistinct["host"] ?? []).map((host) => host.toLowerCase());
}
