/**
 * `npm run bench:exchange`: what data parallelism exchanges in a step, by model and number of ranks. The collectives and the bytes are counted
 * in plans, and the times are those of a model on paper with published bandwidths and latencies of NCCL: see
 * bench/notes/2026-11-19-exchange-on-paper.md. Nothing is measured, and no GPU is needed.
 */

import "./source-modules.js";
import { Device } from "holdfast";
import { answerHelp } from "../test/support/command-line.js";
import {
  type PlannedModel,
  planExchange,
  plannedCrossAsset,
  plannedGpt2,
} from "../test/support/planned-exchange.js";

answerHelp(import.meta.url);

const device = new Device("cpu", { memory: "3GiB", stallAfter: "off", print: () => {} });
const perNode = 8;

/**
 * In GB/s: NCCL's collectives within a machine, its all-gather over many machines, which is counted for the reduce-scatter too, and one network
 * card.
 */
const bandwidth = { link: 360, manyMachines: 200, card: 48 } as const;
/** In µs: NCCL's constants of a ring with its protocol for large messages. */
const latency = { base: 8.4, link: 3.4, network: 9.6 } as const;

/** How gradients are added: by NCCL, or with the option `shards` by each rank in one order. */
const ways = ["reduce-scatter", "all-to-all"] as const;
type Way = (typeof ways)[number];

interface Cost {
  readonly sumUs: number;
  readonly allGatherUs: number;
}

/** Of gradients with so many bytes in all, in so many buckets. */
function costOf(way: Way, bytes: number, ranks: number, buckets: number): Cost {
  const nodes = Math.ceil(ranks / perNode);
  const sentBytes = (bytes * (ranks - 1)) / ranks;
  const bytesPerUs = (gigabytes: number): number => gigabytes * 1000;
  const [toAll, ring] =
    nodes === 1 ? [bandwidth.link, bandwidth.link] : [bandwidth.card, bandwidth.manyMachines];
  const ringUs = (ranks - nodes) * latency.link + (nodes - 1) * latency.network;
  const allGatherUs = buckets * (latency.base + ringUs) + sentBytes / bytesPerUs(ring);
  const allToAllUs = buckets * latency.base + sentBytes / bytesPerUs(toAll);
  return { sumUs: way === "all-to-all" ? allToAllUs : allGatherUs, allGatherUs };
}

/** The steps that were measured on one H200; see the notes. */
const workloads: readonly {
  readonly name: string;
  readonly stepMs: number;
  /** More ranks would take minutes to plan. */
  readonly maxPlanned: number;
  readonly make: (rows: number) => PlannedModel;
}[] = [
  {
    name: "CrossAsset, batch 256",
    ...{ stepMs: 0.27, maxPlanned: 64, make: (rows) => plannedCrossAsset(device, rows) },
  },
  { name: "GPT-2 124M, 8 × 1024", stepMs: 16.26, maxPlanned: 8, make: (rows) => plannedGpt2(device, rows) },
];

const megabytes = (bytes: number): string => (bytes / 1e6).toFixed(2);
const ms = (us: number): string => (us / 1000).toFixed(us < 10_000 ? 3 : 1);
const percent = (share: number): string => `${(100 * share).toFixed(0)} %`;

for (const { name, stepMs, maxPlanned, make } of workloads) {
  const planned = make(1);
  for (const way of ways) {
    console.log(
      `${name}, a step of ${stepMs} ms on one GPU, ${way === "all-to-all" ? "with the option shards" : "by default"}`,
    );
    console.log(
      `ranks  collectives  sent, MB  counted in${`${way}, ms`.padStart(20)}  all-gather, ms  efficiency: whole, in turn  in buckets, overlapped`,
    );
    let counted = { parameters: 0, collectives: 0, sentBytes: 0 };
    for (const ranks of [1, 2, 4, 8, 64, 1024]) {
      const isPlanned = ranks <= maxPlanned;
      if (isPlanned)
        counted = planExchange(device, planned, ranks, way === "all-to-all" ? { shards: ranks } : {});
      const bytes = 4 * (counted.parameters + 1);
      const { collectives } = counted;
      const sentBytes = isPlanned ? counted.sentBytes : (2 * bytes * (ranks - 1)) / ranks;
      const { sumUs, allGatherUs } = costOf(way, bytes, ranks, 1);
      const inBuckets = costOf(way, bytes, ranks, collectives / 2);
      const msOf = (cost: Cost): number => (ranks === 1 ? 0 : (cost.sumUs + cost.allGatherUs) / 1000);
      const exchangeMs = msOf({ sumUs, allGatherUs });
      // The backward pass is two thirds of a step.
      const overlappedMs = Math.max(stepMs, stepMs / 3 + msOf(inBuckets));
      console.log(
        [
          ...[String(ranks).padStart(5), String(collectives).padStart(13), megabytes(sentBytes).padStart(10)],
          (isPlanned ? "the plan" : "the formula").padStart(12),
          (ranks === 1 ? "–" : ms(sumUs)).padStart(20),
          (ranks === 1 ? "–" : ms(allGatherUs)).padStart(16),
          percent(stepMs / (stepMs + exchangeMs)).padStart(28),
          percent(stepMs / overlappedMs).padStart(24),
        ].join(""),
      );
    }
  }
}
device.close();
