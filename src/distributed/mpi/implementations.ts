/**
 * The implementations of MPI: where they are installed, and their handles and constants. MPI fixes the names and meanings of functions, but
 * until MPI 5 every implementation had an ABI of its own.
 */

/** A handle: an address, or an integer of 32 bits. */
export type MpiHandle = number | bigint;

/** The ABI of an implementation, as far as Holdfast uses it. */
export interface MpiAbi {
  readonly name: "Open MPI" | "MPICH" | "the ABI of MPI 5";
  /** The C type of handles in prototypes. */
  readonly handleType: "uint64_t" | "int";
  readonly handleBytes: 4 | 8;
  readonly world: MpiHandle;
  readonly byte: MpiHandle;
  /** Of 8 bytes: a count of 32 bits then covers 16 GiB. */
  readonly double: MpiHandle;
  readonly float: MpiHandle;
  /** The operation of reductions that adds. */
  readonly sum: MpiHandle;
  readonly errorsReturn: MpiHandle;
  /** The address that says that no status is wanted. */
  readonly statusIgnore: number;
  readonly threadFunneled: number;
}

/** Handles are integers with the kind and the size of the object in them. Intel MPI, MVAPICH and Cray MPICH have the same ABI. */
const mpich: MpiAbi = {
  name: "MPICH",
  handleType: "int",
  handleBytes: 4,
  world: 0x44000000,
  byte: 0x4c00010d,
  double: 0x4c00080b,
  float: 0x4c00040a,
  sum: 0x58000003,
  errorsReturn: 0x54000001,
  statusIgnore: 1,
  threadFunneled: 1,
};

const mpi5: MpiAbi = {
  name: "the ABI of MPI 5",
  handleType: "uint64_t",
  handleBytes: 8,
  world: 0x101,
  byte: 0x247,
  double: 0x214,
  float: 0x210,
  sum: 0x21,
  errorsReturn: 0x143,
  statusIgnore: 0,
  threadFunneled: 1024,
};

/** Handles are the addresses of variables of the library. */
function openMpi(addressOf: (symbol: string) => bigint | undefined): MpiAbi | undefined {
  const [world, byte, double, float, sum, errorsReturn] = [
    "ompi_mpi_comm_world",
    "ompi_mpi_byte",
    "ompi_mpi_double",
    "ompi_mpi_float",
    "ompi_mpi_op_sum",
    "ompi_mpi_errors_return",
  ].map(addressOf);
  if (world === undefined || byte === undefined || double === undefined) return undefined;
  if (float === undefined || sum === undefined || errorsReturn === undefined) return undefined;
  const handles = { world, byte, double, float, sum, errorsReturn };
  return {
    name: "Open MPI",
    handleType: "uint64_t",
    handleBytes: 8,
    ...handles,
    statusIgnore: 0,
    threadFunneled: 1,
  };
}

/**
 * The ABI of a loaded library. `version` is the text of `MPI_Get_library_version`. Undefined if Holdfast does not know it.
 */
export function mpiAbiOf(
  library: string,
  version: string,
  addressOf: (symbol: string) => bigint | undefined,
): MpiAbi | undefined {
  // Later versions of MPICH and Open MPI have the functions of MPI 5's ABI in a library of its own, next to that of their own ABI.
  if (/mpi_abi/.test(library)) return mpi5;
  const own = openMpi(addressOf);
  if (own) return own;
  return /MPICH|Intel\(R\) MPI|MVAPICH|CRAY/i.test(version) ? mpich : undefined;
}

const sonames = {
  openMpi: ["libmpi.so.40"],
  mpich: ["libmpich.so.12", "libmpi.so.12", "libmpi_cray.so.12"],
  mpi5: ["libmpi_abi.so.0", "libmpi_abi.so"],
};

/** Sonames to try, those of the launcher first. */
export function mpiCandidates(launcher: string | undefined): readonly string[] {
  const { openMpi: open, mpich: ch, mpi5: abi } = sonames;
  return launcher === "MPICH" ? [...ch, ...abi, ...open] : [...open, ...abi, ...ch];
}
