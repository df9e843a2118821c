/** The WebAssembly kernels of CPU GEMMs. */

import type { KernelSource } from "../../../driver/index.js";
import { cachedSource } from "../../source-cache.js";
import type { AccessToC } from "../desc.js";
import { type DirectConfig, directKernel } from "./direct.js";
import { elementOf, type GemmDtype } from "./element.js";
import { multiplyKernel } from "./multiply.js";
import { packKernel } from "./pack.js";

export type GemmKernel = "pack" | "multiply" | DirectConfig;

export function gemmKernel(kind: GemmKernel, dtype: GemmDtype, access: AccessToC): KernelSource {
  return cachedSource(`wasm gemm ${kind} ${dtype} ${access}`, () => printKernel(kind, dtype, access));
}

function printKernel(kind: GemmKernel, dtype: GemmDtype, access: AccessToC): KernelSource {
  const element = elementOf(dtype);
  if (kind === "pack") return packKernel(element);
  if (kind === "multiply") return multiplyKernel(element, access);
  return directKernel(element, kind, access);
}
