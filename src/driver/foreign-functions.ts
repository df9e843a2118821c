/**
 * C libraries, called through koffi. It is loaded at the first need, because most runs on the CPU have none, and it takes
 * 20 ms and 5 MB.
 */

import { createRequire } from "node:module";
import type * as Koffi from "koffi";
import { HoldfastError } from "../errors/index.js";
import { formatBytes, MiB } from "../units/index.js";

/** koffi runs C on a stack of its own, of 2 MiB unless told otherwise: numerical libraries crash on it. */
const stackBytes = 16 * MiB;

let loaded: typeof Koffi | undefined;

export function loadKoffi(): typeof Koffi {
  if (loaded) return loaded;
  const koffi = createRequire(import.meta.url)("koffi") as typeof Koffi;
  const { sync_stack_size: size = 0 } = koffi.config();
  if (size < stackBytes) {
    try {
      koffi.config({ sync_stack_size: stackBytes, async_stack_size: stackBytes });
    } catch (cause) {
      const message = `koffi has loaded a library before Holdfast, and calls C on a stack of ${formatBytes(size)} from then on; ${formatBytes(stackBytes)} is needed. Open the runtime before that, or call koffi.config({ sync_stack_size: 16 << 20 }) first.`;
      throw new HoldfastError("UNSUPPORTED", message, { numbers: { size, needed: stackBytes }, cause });
    }
  }
  loaded = koffi;
  return koffi;
}
