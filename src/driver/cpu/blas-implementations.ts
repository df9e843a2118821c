/** The BLAS implementations that Holdfast knows: where they are installed, and how to ask each for its version and set its threads. */

/** Looks up a C function by its prototype; undefined if the library lacks it. */
export type FindFunction = (prototype: string) => ((...args: unknown[]) => unknown) | undefined;

/** What a loaded library says about itself. */
export interface BlasDescription {
  /** The implementation with its version and, if known, the processor that its kernels are for. */
  readonly name: string;
  /** True if its integers have 64 bits. */
  readonly hasWideIntegers: boolean;
  /** Sets the number of threads for the whole process. */
  readonly setThreads?: (threads: number) => void;
}

/** Asks a library what it is. Undefined if it is none of the implementations below: then it may be slow. */
export function describeBlas(library: string, find: FindFunction): BlasDescription | undefined {
  return (
    describeOpenBlas(find) ??
    describeBlis(find) ??
    describeMkl(find) ??
    describeNvpl(find) ??
    describeAccelerate(library)
  );
}

function describeOpenBlas(find: FindFunction): BlasDescription | undefined {
  const setThreads = find("void openblas_set_num_threads(int threads)");
  if (!setThreads) return undefined;
  const config = String(find("const char *openblas_get_config()")?.() ?? "");
  const processor = find("const char *openblas_get_corename()")?.();
  return {
    name: nameOf("OpenBLAS", /OpenBLAS (\S+)/.exec(config)?.[1], processor),
    hasWideIntegers: config.includes("USE64BITINT"),
    setThreads: (threads) => void setThreads(threads),
  };
}

function describeBlis(find: FindFunction): BlasDescription | undefined {
  const setThreads = find("void bli_thread_set_num_threads(int64_t threads)");
  if (!setThreads) return undefined;
  const id = find("int bli_arch_query_id()")?.();
  return {
    name: nameOf(
      "BLIS",
      find("const char *bli_info_get_version_str()")?.(),
      find("const char *bli_arch_string(int id)")?.(id),
    ),
    hasWideIntegers: find("int64_t bli_info_get_blas_int_type_size()")?.() === 64,
    setThreads: (threads) => void setThreads(threads),
  };
}

function describeMkl(find: FindFunction): BlasDescription | undefined {
  const setThreads = find("void MKL_Set_Num_Threads(int threads)");
  if (!setThreads) return undefined;
  const text = Buffer.alloc(256);
  find("void MKL_Get_Version_String(_Out_ uint8_t *text, int length)")?.(text, text.length);
  return {
    name: nameOf("MKL", /Version (\d\S*?)(-|\s)/.exec(text.toString("latin1"))?.[1]),
    hasWideIntegers: /ilp64/i.test(process.env["MKL_INTERFACE_LAYER"] ?? ""),
    setThreads: (threads) => void setThreads(threads),
  };
}

/** NVIDIA's library for its Arm processors. Its lp64 builds, the only ones below, have 32-bit integers. */
function describeNvpl(find: FindFunction): BlasDescription | undefined {
  const setThreads = find("void nvpl_blas_set_num_threads(int threads)");
  if (!setThreads) return undefined;
  const version = find("int nvpl_blas_get_version()")?.();
  return {
    name: nameOf("NVPL BLAS", version),
    hasWideIntegers: false,
    setThreads: (threads) => void setThreads(threads),
  };
}

/** Apple's library has no version and chooses its own number of threads. */
function describeAccelerate(library: string): BlasDescription | undefined {
  return library === accelerate ? { name: "Accelerate", hasWideIntegers: false } : undefined;
}

function nameOf(implementation: string, version?: unknown, processor?: unknown): string {
  return `${implementation}${version ? ` ${version}` : ""}${processor ? ` (${processor})` : ""}`;
}

const accelerate = "/System/Library/Frameworks/Accelerate.framework/Accelerate";

/** Names for the system's loader, and paths. The generic names may be any implementation. */
const installedLibraries: Readonly<Partial<Record<NodeJS.Platform, readonly string[]>>> = {
  linux: [
    "libopenblas.so.0",
    // Fedora: with threads, with OpenMP.
    "libopenblasp.so.0",
    "libopenblaso.so.0",
    "/opt/OpenBLAS/lib/libopenblas.so.0",
    "libnvpl_blas_lp64_gomp.so.0",
    "libmkl_rt.so.2",
    "/opt/intel/oneapi/mkl/latest/lib/libmkl_rt.so.2",
    "libblis-mt.so.4",
    "libblis.so.4",
    "libcblas.so.3",
    "libblas.so.3",
  ],
  darwin: [
    accelerate,
    "/opt/homebrew/opt/openblas/lib/libopenblas.dylib",
    "/usr/local/opt/openblas/lib/libopenblas.dylib",
  ],
};

/** Libraries to try, best first. A conda environment's libraries come before those of the system. */
export function listInstalledBlas(
  platform = process.platform,
  condaPrefix = process.env["CONDA_PREFIX"],
): readonly string[] {
  const fromConda = platform === "linux" && condaPrefix ? [`${condaPrefix}/lib/libcblas.so.3`] : [];
  return [...fromConda, ...(installedLibraries[platform] ?? [])];
}
