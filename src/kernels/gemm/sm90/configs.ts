/** The config of a native Hopper kernel (wgmma, TMA), and the epilogue that can be fused into it. */

import type { RowKernel } from "../../../ir/index.js";
import type { MmaElement } from "../../codegen/cuda/intrinsics/wgmma.js";
import type { Products } from "./products.js";
import type { Sm90Tile } from "./tiles.js";

/** Hopper only: Blackwell replaces wgmma by tcgen05. */
export const sm90Capability = "9.0";

/** The properties that a kernel is specialised on. */
export interface Sm90Config {
  readonly element: MmaElement;
  readonly tile: Sm90Tile;
  /** K-major: neighbours along K are contiguous. Otherwise the operand is MN-major. */
  readonly isKMajor: { readonly a: boolean; readonly b: boolean };
  readonly hasBias: boolean;
  /** The dtype of C, rounded once; default: f32. */
  readonly resultDtype?: "f32" | "bf16" | "f16";
  /** Default: f32, whatever the dtype of C. */
  readonly biasDtype?: "f32" | "bf16" | "f16";
  /** N, if the kernel is specialised on it. */
  readonly constantN?: number;
  /** The kernel is specialised on batch == 1. */
  readonly isUnbatched?: boolean;
  /** Loads B before the grid dependency wait (programmatic dependent launch). */
  readonly prefetchesB?: boolean;
  /** Loads the epilogue's operands of the first rows before the mainloop, which hides their latency and takes registers. */
  readonly loadsOperandsEarly?: boolean;
  /** The maximum number of CTAs of a persistent kernel: one per SM. */
  readonly maxCtas?: number;
  /** Scales the accumulators by alpha. */
  readonly hasAlpha?: boolean;
  /** The products of a sum; default: one product. */
  readonly products?: Products;
  /** Launch as 1×2 clusters: two CTAs with the same M tile run on neighbouring SMs, so that A is shared through L2. */
  readonly clusterN?: 2;
}

/** Elementwise work on the accumulators of a GEMM before they are stored. */
export interface Epilogue {
  readonly kernel: RowKernel;
  /** Which of the kernel's inputs is the result of the GEMM. */
  readonly gemmInput: number;
  /** For each input: the output of an earlier stage that it reads (store-to-load forwarding); undefined for inputs from memory. */
  readonly forwarded?: readonly (number | undefined)[];
  /** True if C itself is stored too. */
  readonly storesC: boolean;
}

/** True for the RS mainloop: A is loaded through registers because it is MN-major, and a producer warpgroup transposes B. */
export function isRsMainloop({ element, tile, isKMajor }: Sm90Config): boolean {
  return element === "tf32" && !isKMajor.a && !isKMajor.b && tile.splitsK === 2;
}

/** True if the CTAs of a cluster split K in the SS mainloop, and reduce their accumulators through distributed shared memory. */
export function reducesCluster(config: Sm90Config): boolean {
  return config.tile.splitsK !== undefined && !isRsMainloop(config);
}

/** True for the mma.sync mainloop: small TF32 GEMMs with an MN-major A, which wgmma SS cannot read. */
export function isMmaSyncMainloop(config: Sm90Config): boolean {
  return config.element === "tf32" && !config.isKMajor.a && !isRsMainloop(config);
}

/** True if B has to be transposed in shared memory: wgmma reads TF32 K-major only. */
export function transposesB({ element, isKMajor }: Pick<Sm90Config, "element" | "isKMajor">): boolean {
  return element === "tf32" && !isKMajor.b;
}
