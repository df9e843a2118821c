/** What ranks could exchange bytes with: MPI between CPUs, NCCL between GPUs. Each is tried with one rank. */

import { type LibraryTrial, tryLibrary } from "../../distributed/index.js";
import type { Settings } from "../../runtime/index.js";
import type { Environment } from "./machine.js";

export interface RankFacts {
  readonly mpi: LibraryTrial;
  /** Null without a GPU to try it on. */
  readonly nccl: LibraryTrial | null;
}

export function tryRanks(settings: Settings, environment: Environment, gpu: number | undefined): RankFacts {
  const folder = settings.cudaPath === "auto" ? undefined : settings.cudaPath;
  const searched = { ...environment, HOLDFAST_CUDA_PATH: folder };
  return {
    mpi: tryLibrary("mpi", { environment: searched }),
    nccl: gpu === undefined ? null : tryLibrary("nccl", { environment: searched, index: gpu }),
  };
}
