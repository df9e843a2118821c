/** Starts a server on an address. An error says why the address is unavailable, and what to use. */

import type { Server } from "node:http";
import type { AddressInfo } from "node:net";
import { HoldfastError } from "../errors/index.js";
import { isAddress } from "./hosts.js";

export interface ListenAddress {
  readonly host: string;
  /** 0 selects a free port. */
  readonly port: number;
}

/** Returns the port. `name` is the server's, for errors. */
export async function listen(server: Server, name: string, { host, port }: ListenAddress): Promise<number> {
  if (!isAddress(host)) throw new HoldfastError("BAD_ARGUMENT", `"${host}" is not an address.`);
  await new Promise<void>((resolve, reject) => {
    server.once("error", (cause: NodeJS.ErrnoException) => reject(cannotListen(name, { host, port }, cause)));
    server.listen({ host, port }, resolve);
  });
  return (server.address() as AddressInfo).port;
}

function cannotListen(
  name: string,
  { host, port }: ListenAddress,
  cause: NodeJS.ErrnoException,
): HoldfastError {
  const why =
    cause.code === "EADDRINUSE"
      ? "another program uses this port; use another --port, or 0 for a free one"
      : cause.code === "EACCES"
        ? "the system does not allow it; use a --port above 1023"
        : cause.message;
  return new HoldfastError("BAD_ARGUMENT", `${name} can't listen on ${host}, port ${port}: ${why}.`, {
    cause,
    numbers: { port },
  });
}
