/** The properties of a runtime that lowering uses: the device, the settings, the CPU's BLAS, and loaded kernels. */

import type { Runtime } from "../runtime/index.js";

export type Target = Pick<Runtime, "device" | "settings" | "blas" | "kernel">;
