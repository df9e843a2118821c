/** Loads an MPI library, and declares the functions that Holdfast calls. */

import type { LibraryHandle } from "koffi";
import { loadKoffi } from "../../driver/index.js";
import { HoldfastError } from "../../errors/index.js";
import { type MpiAbi, mpiAbiOf, mpiCandidates } from "./implementations.js";

/** Memory at an address that does not move, for arguments that C writes. */
export interface FixedCells {
  readonly address: bigint;
  readonly words: Int32Array;
}

/** A function of MPI: arguments are numbers, handles and addresses. The result is its error code. */
type MpiFunction = (...args: readonly (number | bigint | null)[]) => number;

export interface MpiLibrary {
  /** The path or soname that it was loaded by. */
  readonly path: string;
  /** The first line of what it says of itself. */
  readonly version: string;
  readonly abi: MpiAbi;
  readonly init: MpiFunction;
  readonly finalize: MpiFunction;
  readonly commRank: MpiFunction;
  readonly commSize: MpiFunction;
  readonly setErrhandler: MpiFunction;
  readonly ibarrier: MpiFunction;
  readonly ibcast: MpiFunction;
  readonly iallgather: MpiFunction;
  readonly ialltoall: MpiFunction;
  readonly ireduceScatterBlock: MpiFunction;
  readonly test: MpiFunction;
  /** The text of an error code. */
  errorText(code: number): string;
}

/** Cells outside the JavaScript heap. */
export function fixedCells(count: number): FixedCells {
  const words = new Int32Array(new SharedArrayBuffer(4 * count));
  return { words, address: BigInt(loadKoffi().address(words)) };
}

/** Loads the library at `path`, or the first one that is installed. */
export function openMpi(path: string | undefined, launcher: string | undefined): MpiLibrary {
  const candidates = path === undefined ? mpiCandidates(launcher) : [path];
  const problems: string[] = [];
  for (const candidate of candidates) {
    const opened = tryOpen(candidate);
    if (typeof opened === "object") return opened;
    problems.push(`${candidate} ${opened}`);
  }
  throw new HoldfastError(
    "UNSUPPORTED",
    `No MPI library is usable: ${problems.join("; ")}. Install Open MPI or MPICH (Debian's packages openmpi-bin and mpich), or pass the path of a library: distributed.init({ mpi }).`,
    { numbers: { candidates: candidates.length } },
  );
}

/**
 * Settings of UCX, which MPICH and some builds of Open MPI use. To test its hooks of the allocator, UCX moves the end of the heap there and back
 * while other threads may allocate: their memory is then gone, and the process hangs or crashes. UCX also takes over SIGSEGV, which V8 needs
 * for WebAssembly.
 */
const ucxVariables = { UCX_MEM_EVENTS: "n", UCX_ERROR_SIGNALS: "" } as const;

function tryOpen(path: string): MpiLibrary | string {
  const koffi = loadKoffi();
  // UCX reads them when it is loaded.
  for (const [name, value] of Object.entries(ucxVariables)) process.env[name] ??= value;
  let library: LibraryHandle;
  try {
    // Global: the plugins of Open MPI use symbols of the library. Lazy: functions that only they have stay unresolved.
    library = koffi.load(path, { global: true, lazy: true });
  } catch (cause) {
    return `does not load: ${(cause as Error).message}`;
  }
  const addressOf = (symbol: string): bigint | undefined => {
    try {
      return BigInt(koffi.address(library.symbol(symbol)));
    } catch {
      return undefined;
    }
  };
  // Since MPI 3, like the other collectives that do not block.
  if (addressOf("MPI_Ireduce_scatter_block") === undefined)
    return "has no function MPI_Ireduce_scatter_block";
  const text = (name: string, prototype: string, ...before: number[]): string => {
    const bytes = Buffer.alloc(textBytes);
    const length = [0];
    (library.func(prototype) as (...args: unknown[]) => number)(...before, bytes, length);
    const [first = name] = bytes.toString("latin1", 0, length[0]).split(/[\n\0]/);
    return first.trim();
  };
  const version = text("MPI", "int MPI_Get_library_version(_Out_ uint8_t *text, _Out_ int *length)");
  const abi = mpiAbiOf(path, version, addressOf);
  if (!abi) return `is ${version.slice(0, 80)}, whose ABI Holdfast does not know`;
  const { handleType: handle } = abi;
  const declare = (prototype: string) => library.func(prototype) as MpiFunction;
  const [data, counts] = ["uint64_t data, int count", `${handle} type`];
  const pair = `uint64_t from, int fromCount, ${handle} fromType, uint64_t to, int toCount, ${handle} toType`;
  return {
    path,
    version,
    abi,
    init: declare("int MPI_Init_thread(void *argc, void *argv, int required, uint64_t provided)"),
    finalize: declare("int MPI_Finalize()"),
    commRank: declare(`int MPI_Comm_rank(${handle} comm, uint64_t rank)`),
    commSize: declare(`int MPI_Comm_size(${handle} comm, uint64_t size)`),
    setErrhandler: declare(`int MPI_Comm_set_errhandler(${handle} comm, ${handle} handler)`),
    ibarrier: declare(`int MPI_Ibarrier(${handle} comm, uint64_t request)`),
    ibcast: declare(`int MPI_Ibcast(${data}, ${counts}, int root, ${handle} comm, uint64_t request)`),
    iallgather: declare(`int MPI_Iallgather(${pair}, ${handle} comm, uint64_t request)`),
    ialltoall: declare(`int MPI_Ialltoall(${pair}, ${handle} comm, uint64_t request)`),
    ireduceScatterBlock: declare(
      `int MPI_Ireduce_scatter_block(uint64_t from, uint64_t to, int toCount, ${handle} type, ${handle} operation, ${handle} comm, uint64_t request)`,
    ),
    test: declare("int MPI_Test(uint64_t request, uint64_t flag, uint64_t status)"),
    errorText: (code) =>
      text("an error", "int MPI_Error_string(int code, _Out_ uint8_t *text, _Out_ int *length)", code),
  };
}

/** The longest text of the two functions: MPI 5's. */
const textBytes = 8192;
