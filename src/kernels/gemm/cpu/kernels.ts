/** The WebAssembly kernels of CPU GEMMs. */

import type { KernelSource } from "../../../driver/index.js";
import { cachedSource } from "../../source-cache.js";
import type { AccessToC } from "../desc.js";
import { type DirectConfig, directKernel } from "./direct.js";
import type { Element } from "./element.js";
import { multiplyKernel } from "./multiply.js";
import { packKernel } from "./pack.js";

export type GemmKernel = "pack" | "multiply" | DirectConfig;

export function gemmKernel(kind: GemmKernel, element: Element, access: AccessToC): KernelSource {
  const key = `wasm gemm ${kind} ${element.dtype} ${access} ${JSON.stringify(element.tile)}`;
  return cachedSource(key, () => printKernel(kind, element, access));
}

function printKernel(kind: GemmKernel, element: Element, access: AccessToC): KernelSource {
  if (kind === "pack") return packKernel(element);
  if (kind === "multiply") return multiplyKernel(element, access);
  return directKernel(element, kind, access);
}
