/** The kernels of products, each made when it is first needed and kept: a runtime knows a kernel by its source's identity. */

import type { KernelSource } from "../../../driver/index.js";
import type { AccessToC } from "../desc.js";
import { type DirectConfig, directKernel } from "./direct.js";
import { elementOf, type GemmDtype } from "./element.js";
import { multiplyKernel } from "./multiply.js";
import { packKernel } from "./pack.js";

export type GemmKernel = "pack" | "multiply" | DirectConfig;
const made = new Map<string, KernelSource>();

export function gemmKernel(kind: GemmKernel, dtype: GemmDtype, access: AccessToC): KernelSource {
  const key = `${kind} ${dtype} ${access}`;
  const known = made.get(key);
  if (known) return known;
  const source = make(kind, dtype, access);
  made.set(key, source);
  return source;
}

function make(kind: GemmKernel, dtype: GemmDtype, access: AccessToC): KernelSource {
  const element = elementOf(dtype);
  if (kind === "pack") return packKernel(element);
  if (kind === "multiply") return multiplyKernel(element, access);
  return directKernel(element, kind, access);
}
