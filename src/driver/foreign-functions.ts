/**
 * C libraries, called through koffi. koffi is loaded at first use: most CPU runs do not need it, and it takes 20 ms and
 * 5 MB.
 */

import { createRequire } from "node:module";
import type * as Koffi from "koffi";
import { HoldfastError } from "../errors/index.js";
import { formatBytes, MiB } from "../units/index.js";

/** koffi runs C code on a separate stack, 2 MiB by default, on which numerical libraries crash. */
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
      const message = `koffi was used before Holdfast and now calls C on a stack of ${formatBytes(size)}; Holdfast needs ${formatBytes(stackBytes)}. Open the runtime earlier, or call koffi.config({ sync_stack_size: 16 << 20 }) first.`;
      throw new HoldfastError("UNSUPPORTED", message, { numbers: { size, needed: stackBytes }, cause });
    }
  }
  loaded = koffi;
  return koffi;
}
