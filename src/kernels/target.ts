/** What lowering may know of a runtime: the device, the settings, the CPU's BLAS, and the facts of a loaded kernel. */

import type { Runtime } from "../runtime/index.js";

export type Target = Pick<Runtime, "device" | "settings" | "blas" | "kernel">;
