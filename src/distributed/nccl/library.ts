/** Opens NCCL and checks its version. */

import { type Calls, NativeBuffer, openCalls } from "../../driver/index.js";
import { HoldfastError } from "../../errors/index.js";
import { ncclFunctions, ncclVersions } from "./bindings.js";

export interface Nccl {
  readonly calls: Calls<typeof ncclFunctions>;
  /** The file that was loaded. */
  readonly path: string;
  /** 22809 is 2.28.9. */
  readonly version: number;
}

export interface NcclSearch {
  /** The file to load. Default: found as the CUDA libraries are. */
  readonly path?: string | undefined;
  readonly environment?: Readonly<Record<string, string | undefined>>;
}

export function openNccl(search: NcclSearch = {}): Nccl {
  const { calls, path } = openCalls("nccl", ncclFunctions, search);
  const out = new NativeBuffer();
  try {
    calls.ncclGetVersion(out.address);
    const version = out.i32();
    if (version < ncclVersions.oldest)
      throw new HoldfastError(
        "UNSUPPORTED",
        `${path} is NCCL ${formatNcclVersion(version)}; Holdfast needs ${formatNcclVersion(ncclVersions.oldest)} or later. Update pip's nvidia-nccl-cu13 or ` +
          "NVIDIA's package libnccl2, or pass the path of another file: distributed.init({ nccl }).",
        { numbers: { version, oldest: ncclVersions.oldest } },
      );
    return { calls, path, version };
  } finally {
    out.free();
  }
}

/** 2.28.9 */
export function formatNcclVersion(version: number): string {
  return `${Math.floor(version / 10_000)}.${Math.floor(version / 100) % 100}.${version % 100}`;
}
