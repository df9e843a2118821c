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

/** An address and port as in a URL. */
export function urlHost(address: string, port: number): string {
  return `${isIPv6(address) ? `[${address}]` : address}:${port}`;
}

/** True for an IP address or a host name. An empty string is rejected, because it would mean every address. */
export function isAddress(text: string): boolean {
  return isIP(text) !== 0 || /^[a-z\d]([a-z\d.-]*[a-z\d])?$/i.test(text);
}

/** The Host headers of requests to this address. For "every address", all addresses of this machine. */
export function hostsOf(address: string, port: number): ReadonlySet<string> {
  const isEvery = address === "0.0.0.0" || address === "::";
  const addresses = isEvery
    ? [
        hostname(),
        ...Object.values(networkInterfaces()).flatMap((list) => (list ?? []).map(({ address }) => address)),
      ]
    : [address];
  const local = isEvery || isLoopback(address) ? ["localhost", "127.0.0.1", "::1"] : [];
  const names = [...addresses, ...local].map((name) => urlHost(name, port).toLowerCase());
  // Clients omit the default port of HTTP.
  return new Set(port === 80 ? [...names, ...names.map((name) => name.slice(0, -":80".length))] : names);
}

/**
 * The Host headers of a request, in lower case. More than one is a reason to reject it: Node uses the first, but a proxy may have
 * checked another.
 */
export function hostsIn({ headersDistinct }: Pick<IncomingMessage, "headersDistinct">): readonly string[] {
  return (headersDistinct["host"] ?? []).map((host) => host.toLowerCase());
}
