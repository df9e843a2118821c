/** Every NCCL function that Holdfast calls, with its signature, and the constants of their arguments. */

import { type Signatures, Struct } from "../../driver/index.js";

/** Parameters named `to…` are output addresses, except those of collectives: there `from` and `to` are device memory. */
export const ncclFunctions = {
  ncclGetVersion: ["address toVersion"],
  ncclGetErrorString: { takes: ["i32 result"], returns: "text" },
  ncclGetLastError: { takes: ["address communicator"], returns: "text" },
  ncclGetUniqueId: ["address toId"],
  // Takes the identifier by address. `ncclCommInitRank` takes its 128 bytes by value, which koffi passes more slowly.
  ncclCommInitRankScalable: [
    "address toCommunicator",
    "i32 ranks",
    "i32 rank",
    "i32 idCount",
    "address ids",
    "address config",
  ],
  ncclCommGetAsyncError: ["address communicator", "address toResult"],
  ncclCommFinalize: ["address communicator"],
  ncclCommDestroy: ["address communicator"],
  ncclCommAbort: ["address communicator"],
  ncclGroupStart: [],
  ncclGroupEnd: [],
  ncclAllGather: [
    "address from",
    "address to",
    "u64 count",
    "i32 type",
    "address communicator",
    "address stream",
  ],
  // Since 2.28.
  ncclAlltoAll: [
    "address from",
    "address to",
    "u64 count",
    "i32 type",
    "address communicator",
    "address stream",
  ],
  ncclBroadcast: [
    "address from",
    "address to",
    "u64 count",
    "i32 type",
    "i32 root",
    "address communicator",
    "address stream",
  ],
  ncclReduceScatter: [
    "address from",
    "address to",
    "u64 countPerRank",
    "i32 type",
    "i32 operation",
    "address communicator",
    "address stream",
  ],
  ncclSend: ["address from", "u64 count", "i32 type", "i32 peer", "address communicator", "address stream"],
  ncclRecv: ["address to", "u64 count", "i32 type", "i32 peer", "address communicator", "address stream"],
} as const satisfies Signatures;

/** Results of functions, and the states of a communicator. */
export const ncclResult = { Success: 0, RemoteError: 6, InProgress: 7 } as const;

/** Element types. Collectives that compute nothing move bytes. */
export const ncclType = { Uint8: 1, Float32: 7 } as const;

/** The operations of reductions. */
export const ncclOperation = { Sum: 0 } as const;

export const uniqueIdBytes = 128;

/** Versions: 22809 is 2.28.9. */
export const ncclVersions = {
  /** The first with `ncclCommInitRankScalable`. */
  oldest: 22300,
  /** The first with `ncclAlltoAll`. */
  allToAll: 22800,
  /** The first in which several ranks may share a GPU, with NCCL_MULTI_RANK_GPU_ENABLE=1. */
  sharedGpu: 23003,
} as const;

/** The configuration of a communicator, as of NCCL 2.17. Later versions accept it and use defaults for newer fields. */
export const ncclConfig = new Struct("ncclConfig_t", [
  ["size", "u64"],
  ["magic", "u32"],
  ["version", "u32"],
  ["blocking", "i32"],
  ["cgaClusterSize", "i32"],
  ["minCTAs", "i32"],
  ["maxCTAs", "i32"],
  ["netName", "address"],
  ["splitShare", "i32"],
]);

const undefinedNumber = -(2 ** 31);

/** A configuration whose calls return at once: while a call is in progress, the communicator can be asked and aborted. */
export const nonBlockingConfig = {
  size: ncclConfig.size,
  magic: 0xcafebeef,
  version: 21700,
  blocking: 0,
  cgaClusterSize: undefinedNumber,
  minCTAs: undefinedNumber,
  maxCTAs: undefinedNumber,
  splitShare: undefinedNumber,
} as const;
