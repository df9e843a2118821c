/**
 * CUDA's functions as methods: `cuda.driver.cuMemCreate(…)` takes the arguments of the binding table and throws an
 * explained error if the status is a failure. libcuda is opened at once, the other libraries at first use. Each
 * function is bound at its first use.
 */

import type { LibraryHandle } from "koffi";
import { HoldfastError } from "../../errors/index.js";
import { loadKoffi } from "../foreign-functions.js";
import {
  cublasLtFunctions,
  cudaFunctions,
  type ForeignParameter,
  foreignTypes,
  listParameters,
  nvrtcFunctions,
  nvtxFunctions,
  resultType,
  type Signature,
  type Signatures,
  splitParameter,
} from "./bindings.js";
import { type CudaLibrary, type FailedCall, FailureLog, type ForeignValue } from "./cuda-error.js";
import { type LibrarySearch, type OpenedLibrary, openLibrary } from "./libraries.js";
import { NativeBuffer } from "./native-buffer.js";

type Parameters<S> = S extends { takes: infer P } ? P : S;

type Values<P> = {
  -readonly [Index in keyof P]: P[Index] extends `text ${string}` ? string : number;
};

type ValuesOf<S> = Extract<Values<Parameters<S>>, readonly unknown[]>;

type ResultOf<S> = S extends { returns: infer R }
  ? ReturnType<(typeof resultReaders)[Extract<R, keyof typeof resultReaders>]>
  : undefined;

type StatusName<F> = { [Name in keyof F]: F[Name] extends { returns: unknown } ? never : Name }[keyof F];

/** The functions of a library. Those under `status` return the status instead of throwing. */
export type Calls<F extends Signatures> = {
  readonly [Name in keyof F]: (...values: ValuesOf<F[Name]>) => ResultOf<F[Name]>;
} & {
  readonly status: { readonly [Name in StatusName<F>]: (...values: ValuesOf<F[Name]>) => number };
};

export interface Cuda {
  readonly driver: Calls<typeof cudaFunctions>;
  readonly nvrtc: Calls<typeof nvrtcFunctions>;
  readonly cublasLt: Calls<typeof cublasLtFunctions>;
  readonly nvtx: Calls<typeof nvtxFunctions>;
  /** The libraries opened so far, with the loaded files. */
  readonly libraries: readonly OpenedLibrary[];
}

export function openCuda(search: LibrarySearch = {}): Cuda {
  const failures = new FailureLog();
  const libraries: OpenedLibrary[] = [];
  const open = <F extends Signatures>(library: CudaLibrary, functions: F, driverMajor?: number): Calls<F> => {
    const opened = openLibrary(library, driverMajor === undefined ? search : { ...search, driverMajor });
    libraries.push(opened);
    return bindCalls({ library, functions, opened, failures });
  };
  const driver = open("cuda", cudaFunctions);
  let nvrtc: Cuda["nvrtc"] | undefined;
  let cublasLt: Cuda["cublasLt"] | undefined;
  let nvtx: Cuda["nvtx"] | undefined;
  return {
    driver,
    get nvrtc() {
      nvrtc ??= open("nvrtc", nvrtcFunctions, driverMajorVersion(driver));
      return nvrtc;
    },
    get cublasLt() {
      cublasLt ??= open("cublasLt", cublasLtFunctions, driverMajorVersion(driver));
      return cublasLt;
    },
    get nvtx() {
      nvtx ??= open("nvtx", nvtxFunctions);
      return nvtx;
    },
    libraries,
  };
}

/** The driver's version is 13000 for CUDA 13.0. It runs the libraries of that CUDA and of earlier ones. */
function driverMajorVersion(driver: Cuda["driver"]): number {
  const out = new NativeBuffer();
  try {
    driver.cuDriverGetVersion(out.address);
    return Math.floor(out.i32() / 1000);
  } finally {
    out.free();
  }
}

/** Opens a library and binds the functions of a table, apart from an open GPU. */
export function openCalls<F extends Signatures>(
  library: CudaLibrary,
  functions: F,
  search: LibrarySearch = {},
): { readonly calls: Calls<F>; readonly path: string } {
  const opened = openLibrary(library, search);
  return { calls: bindCalls({ library, functions, opened, failures: new FailureLog() }), path: opened.path };
}

export interface Binding<F extends Signatures> {
  readonly library: CudaLibrary;
  readonly functions: F;
  readonly opened: Pick<OpenedLibrary, "handle" | "path">;
  readonly failures: FailureLog;
}

type ForeignFunction = (...values: readonly ForeignValue[]) => unknown;

/** Outside these two calls, a failure is unrelated to the previous capture. */
const captureBoundaries: ReadonlySet<string> = new Set(["cuStreamBeginCapture_v2", "cuStreamEndCapture"]);

/** Binds the functions of a table in an opened library. */
export function bindCalls<F extends Signatures>({
  library,
  functions,
  opened,
  failures,
}: Binding<F>): Calls<F> {
  const statusCalls: Record<string, ForeignFunction> = {};
  const calls: Record<string, unknown> = { status: statusCalls };

  for (const [name, signature] of Object.entries<Signature>(functions)) {
    const parameters = listParameters(signature);
    const result = resultType(signature);
    const bound = () => bindFunction(opened, name, parameters, resultTypes[result]);
    if (result !== "status") {
      const read = resultReaders[result];
      defineLazily(calls, name, () => {
        const call = bound();
        return (...values: ForeignValue[]) => read(call(...values));
      });
      continue;
    }

    const describe = (status: number, values: readonly ForeignValue[]): FailedCall => {
      const [statusName, text] = explainStatus(library, opened.handle, status);
      return { library, call: name, parameters, values, status, name: statusName, text };
    };
    const isCaptureBoundary = captureBoundaries.has(name);
    defineLazily(calls, name, () => {
      const call = bound();
      return (...values: ForeignValue[]) => {
        const status = call(...values) as number;
        if (status !== 0) {
          const failed = describe(status, values);
          failures.note(library, status, () => failed);
          const error = failures.toError(failed);
          if (isCaptureBoundary) failures.forgetCapture();
          throw error;
        }
        if (isCaptureBoundary) failures.forgetCapture();
      };
    });
    defineLazily(statusCalls, name, () => {
      const call = bound();
      return (...values: ForeignValue[]) => {
        const status = call(...values) as number;
        if (status !== 0) failures.note(library, status, () => describe(status, values));
        if (isCaptureBoundary) failures.forgetCapture();
        return status;
      };
    });
  }
  return calls as Calls<F>;
}

/** Converts koffi's result for the caller. */
const resultReaders = {
  text: (value: unknown) => String(value ?? ""),
  u64: Number,
  address: Number,
  nothing: () => undefined,
} as const;

const resultTypes = {
  status: "int32_t",
  text: "const char *",
  u64: "uint64_t",
  address: "uint64_t",
  nothing: "void",
} as const;

function bindFunction(
  { handle, path }: Binding<Signatures>["opened"],
  name: string,
  parameters: readonly ForeignParameter[],
  result: string,
): ForeignFunction {
  const types = parameters.map((parameter) => foreignTypes[splitParameter(parameter).type]);
  try {
    return handle.func(name, result, types);
  } catch (cause) {
    const message = `${path} has no function ${name}: it is older than CUDA 12.0, which Holdfast needs, or not a CUDA library. Update it, or set HOLDFAST_CUDA_PATH to a folder with another one.`;
    throw new HoldfastError("NO_CUDA", message, { numbers: { path, call: name }, cause });
  }
}

/** Defines a property that is computed at its first use. */
function defineLazily(target: Record<string, unknown>, name: string, make: () => unknown): void {
  Object.defineProperty(target, name, {
    configurable: true,
    enumerable: true,
    get() {
      const value = make();
      Object.defineProperty(target, name, { configurable: true, enumerable: true, value });
      return value;
    },
  });
}

/** The library's name and text for a status. */
function explainStatus(library: CudaLibrary, handle: LibraryHandle, status: number): [string, string] {
  const ask = (name: string) => String(handle.func(name, "const char *", ["int32_t"])(status) ?? "");
  if (library === "nvrtc") return [ask("nvrtcGetErrorString"), ""];
  if (library === "nccl") return ["", ask("ncclGetErrorString")];
  if (library === "cublasLt") return [ask("cublasLtGetStatusName"), ask("cublasLtGetStatusString")];
  const out = new NativeBuffer();
  const askByAddress = (name: string) => {
    out.setU64(0);
    handle.func(name, "int32_t", ["int32_t", "uint64_t"])(status, out.address);
    return out.u64() === 0 ? "" : String(loadKoffi().decode.string(out.u64()));
  };
  const texts: [string, string] = [askByAddress("cuGetErrorName"), askByAddress("cuGetErrorString")];
  out.free();
  return texts;
}
