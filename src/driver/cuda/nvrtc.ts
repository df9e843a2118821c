/** Compiles one program with NVRTC. Any thread may do so: the calls of different programs are independent. */

import { HoldfastError } from "../../errors/index.js";
import { loadKoffi } from "../foreign-functions.js";
import type { Cuda } from "./calls.js";
import { NativeBuffer } from "./native-buffer.js";

export type Nvrtc = Cuda["nvrtc"];

/** CUDA C++ and the compiler's options for it. */
export interface NvrtcProgram {
  /** The kernel's name, for messages. */
  readonly name: string;
  readonly code: string;
  /** The first one is the architecture. */
  readonly options: readonly string[];
}

/** Returns the machine code. An error has the compiler's log. */
export function compileProgram(nvrtc: Nvrtc, { name, code, options }: NvrtcProgram): Uint8Array<ArrayBuffer> {
  const out = new NativeBuffer();
  const optionTable = new TextTable(options);
  let program = 0;
  try {
    nvrtc.nvrtcCreateProgram(out.address, code, `${name}.cu`, 0, 0, 0);
    program = out.u64();
    const status = nvrtc.status.nvrtcCompileProgram(program, options.length, optionTable.address);
    if (status !== 0) {
      const architecture = options[0]?.split("=")[1];
      throw new HoldfastError(
        "KERNEL_FAILED",
        `Kernel "${name}" did not compile for ${architecture} (${nvrtc.nvrtcGetErrorString(status)}):\n${readLog(nvrtc, program, out)}`,
        { numbers: { kernel: name, status } },
      );
    }
    nvrtc.nvrtcGetCUBINSize(program, out.address);
    const cubin = new Uint8Array(out.u64());
    nvrtc.nvrtcGetCUBIN(program, Number(loadKoffi().address(cubin)));
    return cubin;
  } finally {
    optionTable.free();
    if (program !== 0) {
      out.setU64(program);
      nvrtc.nvrtcDestroyProgram(out.address);
    }
    out.free();
  }
}

function readLog(nvrtc: Nvrtc, program: number, out: NativeBuffer): string {
  nvrtc.nvrtcGetProgramLogSize(program, out.address);
  const log = new Uint8Array(out.u64());
  if (log.length > 0) nvrtc.nvrtcGetProgramLog(program, Number(loadKoffi().address(log)));
  return new TextDecoder().decode(log).replace(/\0.*$/s, "").trim();
}

/** A C array of strings: a table of addresses of null-terminated texts. */
class TextTable {
  readonly #block: NativeBuffer;

  constructor(texts: readonly string[]) {
    const encoded = texts.map((text) => new TextEncoder().encode(`${text}\0`));
    const tableBytes = 8 * texts.length;
    this.#block = new NativeBuffer(tableBytes + encoded.reduce((sum, text) => sum + text.length, 0));
    let offset = tableBytes;
    for (const [index, text] of encoded.entries()) {
      this.#block.setU64(this.#block.address + offset, 8 * index);
      this.#block.bytes.set(text, offset);
      offset += text.length;
    }
  }

  get address(): number {
    return this.#block.address;
  }

  free(): void {
    this.#block.free();
  }
}
