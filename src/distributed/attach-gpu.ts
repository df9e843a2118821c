/** Connects the GPUs of all ranks: compares what the ranks have, and makes the communicator. */

import { HoldfastError } from "../errors/index.js";
import type { Runtime } from "../runtime/index.js";
import { ncclVersions } from "./nccl/bindings.js";
import { NcclCommunicator } from "./nccl/communicator.js";
import { formatNcclVersion, type Nccl, openNccl } from "./nccl/library.js";
import type { Peers } from "./peers/peers.js";

/** What a rank tells the others of its GPU. */
interface GpuRecord {
  readonly host: string;
  readonly uuid: string;
  readonly gpu: string;
  readonly nccl: number;
  /** Why it has no NCCL. */
  readonly problem?: string;
}

export interface AttachOptions {
  readonly peers: Peers;
  readonly runtime: Runtime;
  /** The file of the library, if the user names one. */
  readonly library: string | undefined;
  readonly withinMs: number;
}

/** All ranks call it. Every rank throws if one of them does not fit. */
export function attachGpu({ peers, runtime, library, withinMs }: AttachOptions): NcclCommunicator {
  const { uuid = "unknown", name } = runtime.device;
  const opened = tryOpen(library, runtime);
  const { host } = peers.identities[peers.rank] ?? { host: "localhost" };
  const own: GpuRecord = {
    ...{ host, uuid, gpu: name },
    ...("version" in opened ? { nccl: opened.version } : { nccl: 0, problem: opened.message }),
  };
  requireFitting(peers.exchange("the GPU", own));
  if (!("version" in opened)) throw opened;
  // Makes the GPU's context current, as NCCL expects.
  runtime.synchronize();
  const communicator = new NcclCommunicator({
    ...{ nccl: opened, rank: peers.rank, size: peers.size, withinMs, observer: peers },
    share(id) {
      const [first = ""] = peers.exchange(
        "the identifier of NCCL",
        id ? Buffer.from(id).toString("base64") : "",
      );
      return Buffer.from(first, "base64");
    },
  });
  peers.watchCommunicator({ library: opened.path, handle: communicator.handle });
  return communicator;
}

function tryOpen(path: string | undefined, { settings: { cudaPath } }: Runtime): Nccl | HoldfastError {
  try {
    // Next to the CUDA libraries, if the user names their folder.
    const folder = cudaPath === "auto" ? undefined : cudaPath;
    return openNccl({ path, environment: { ...process.env, HOLDFAST_CUDA_PATH: folder } });
  } catch (error) {
    if (error instanceof HoldfastError) return error;
    throw error;
  }
}

function requireFitting(records: readonly GpuRecord[]): void {
  const [first] = records;
  const users = new Map<string, number>();
  for (const [rank, { problem, host, uuid, gpu, nccl }] of records.entries()) {
    if (problem !== undefined) throw differ(`Rank ${rank} on ${host} has no NCCL: ${problem}`, rank);
    if (first && nccl !== first.nccl)
      throw differ(
        `Rank ${rank} on ${host} has NCCL ${formatNcclVersion(nccl)}, and rank 0 on ${first.host} has ${formatNcclVersion(first.nccl)}. Install the same version ` +
          "everywhere, or pass the path of the library: distributed.init({ nccl }).",
        rank,
      );
    const other = users.get(uuid);
    if (
      other !== undefined &&
      !(nccl >= ncclVersions.sharedGpu && process.env["NCCL_MULTI_RANK_GPU_ENABLE"] === "1")
    )
      throw differ(
        `Ranks ${other} and ${rank} on ${host} have the same GPU: ${gpu}, ${uuid}. Start one process for each GPU, and let each see its own: ` +
          'device("cuda") takes the GPU of its local rank, unless an index is given or CUDA_VISIBLE_DEVICES hides the others.',
        rank,
      );
    users.set(uuid, rank);
  }
}

function differ(message: string, rank: number): HoldfastError {
  return new HoldfastError("RANKS_DIFFER", message, { numbers: { rank } });
}
