/** The versions of the CUDA libraries, as text. */

import type { Cuda } from "./calls.js";
import { NativeBuffer } from "./native-buffer.js";

/** The newest CUDA that the driver supports: "13.0". */
export function cudaVersion(driver: Cuda["driver"]): string {
  return readOut((out) => {
    driver.cuDriverGetVersion(out.address);
    return `${Math.floor(out.i32() / 1000)}.${Math.floor((out.i32() % 1000) / 10)}`;
  });
}

export function nvrtcVersion(nvrtc: Cuda["nvrtc"]): string {
  return readOut((out) => {
    nvrtc.nvrtcVersion(out.address, out.address + 4);
    return `${out.i32()}.${out.i32(4)}`;
  });
}

/** 130002 is 13.0.2. */
export function cublasLtVersion(cublasLt: Cuda["cublasLt"]): string {
  const version = cublasLt.cublasLtGetVersion();
  return `${Math.floor(version / 10_000)}.${Math.floor(version / 100) % 100}.${version % 100}`;
}

function readOut(read: (out: NativeBuffer) => string): string {
  const out = new NativeBuffer();
  try {
    return read(out);
  } finally {
    out.free();
  }
}
