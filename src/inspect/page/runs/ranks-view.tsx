/** The ranks of a distributed run side by side: the time of a step on each, its part in collectives, what it sends, and slow ranks. */

import { useMemo, useRef } from "preact/hooks";
import { Chart, type ChartHandle } from "../charts/chart.js";
import type { ChartSeries } from "../charts/chart-options.js";
import { download, Figure, fileName, pictureAction } from "../charts/figure.js";
import { lookOf } from "../charts/palette.js";
import { runPath, useFetched } from "../server.js";
import { toCsv } from "../tables/csv.js";
import { formatBytes, formatCount, formatDuration, formatNumber } from "../tables/format.js";
import { SortTable, type TableColumn } from "../tables/sort-table.js";
import type { RankLine, RankTable, RunDetail } from "../wire.js";
import { chartedRanks } from "./ranks.js";
import { mergeSteps } from "./steps.js";

export interface RanksViewProps {
  readonly detail: RunDetail;
  readonly version: number;
}

export function RanksView({ detail, version }: RanksViewProps) {
  const { answer, rejection } = useFetched<RankTable>(runPath(detail.name, "/ranks"), version);
  const ranks = answer?.ranks ?? [];
  const slow = ranks.filter(({ isSlow }) => isSlow);
  const isSeen = ranks.some(({ ownMs }) => ownMs !== null);
  const longestMs = Math.max(...ranks.map(({ stepMs }) => stepMs ?? 0));
  const columns = useMemo(() => rankColumns(longestMs), [longestMs]);
  return (
    <>
      <Figure
        title="Ranks"
        caption={captionOf(ranks, slow, isSeen)}
        hint="A step's own work is its time outside of collectives: computing, loading data, writing checkpoints. The rest is waiting for other ranks and moving bytes. All ranks have the same step time, because they wait for each other: the rank with the most own work sets it. It is marked as slow if it works longer than the median of the others by a tenth of a step. Times are medians. On GPUs the collectives are part of a graph, and the host does not see how long they take."
        isWide
        empty={rejection ?? (answer ? undefined : "Loading the ranks…")}
        actions={[
          {
            label: "CSV",
            title: "Save this table",
            run: () => download(fileName(detail.name, "ranks.csv"), csvOf(ranks)),
          },
        ]}
      >
        <SortTable label="Ranks" rows={ranks} columns={columns} pageSize={16} />
      </Figure>
      <OwnWork run={detail.name} ranks={ranks} isSeen={isSeen} />
    </>
  );
}

function OwnWork({
  run,
  ranks,
  isSeen,
}: {
  readonly run: string;
  readonly ranks: readonly RankLine[];
  readonly isSeen: boolean;
}) {
  const chart = useRef<ChartHandle>(null);
  const shown = useMemo(() => chartedRanks(ranks), [ranks]);
  const { x, series } = useMemo(() => {
    const { steps, align } = mergeSteps(shown.map(({ points }) => points.map(({ step }) => step)));
    return {
      x: steps,
      series: shown.map(({ rank, points }, index): ChartSeries => {
        const values = points.map(({ stepMs, ownMs }) => ownMs ?? stepMs);
        return { label: `rank ${rank}`, ...lookOf(index), values: align(index, values) };
      }),
    };
  }, [shown]);
  const title = isSeen ? "Own work by rank" : "Step time by rank";
  const which =
    shown.length < ranks.length ? ` The ${shown.length} slowest of ${formatCount(ranks.length)} ranks.` : "";
  return (
    <Figure
      title={title}
      caption={
        isSeen
          ? `The time of a step outside of collectives.${which}`
          : `The time of a step. The host does not see collectives of GPUs.${which}`
      }
      hint="A rank whose line is above the others makes them wait. If the lines change places, the work is uneven: look at the length of rows, and at other programs on the machines."
      isWide
      empty={x.length === 0 ? "No steps yet." : undefined}
      actions={[pictureAction(chart, run, title)]}
    >
      <Chart
        title={title}
        x={x}
        series={series}
        format={formatMs}
        startsAtZero
        clipsOutliers
        spansGaps
        handle={chart}
      />
    </Figure>
  );
}

function captionOf(ranks: readonly RankLine[], slow: readonly RankLine[], isSeen: boolean): string {
  if (!isSeen) return "What each process sends in a step, and how long a step takes.";
  const names = slow
    .slice(0, 5)
    .map(({ rank }) => rank)
    .join(", ");
  const more = slow.length > 5 ? ` and ${slow.length - 5} more` : "";
  const verdict =
    slow.length === 0
      ? "No rank makes the others wait."
      : `The others wait for rank${slow.length > 1 ? "s" : ""} ${names}${more}.`;
  return `What each of the ${formatCount(ranks.length)} processes does in a step. ${verdict}`;
}

function rankColumns(longestMs: number): readonly TableColumn<RankLine>[] {
  return [
    {
      label: "rank",
      value: ({ rank }) => rank,
      show: ({ rank, isSlow }) => (
        <>
          {rank}
          {isSlow ? <span class="slow">slow</span> : null}
        </>
      ),
    },
    { label: "host", value: ({ host }) => host },
    { label: "process", value: ({ pid }) => pid, isNumber: true },
    {
      label: "own work and collectives",
      value: ({ ownMs }) => ownMs ?? undefined,
      show: (line) => <StepBar line={line} longestMs={longestMs} />,
      title: "The thick part is its own work, the pale part is in collectives",
    },
    {
      label: "step",
      value: ({ stepMs }) => stepMs ?? undefined,
      show: (line) => formatMs(line.stepMs),
      isNumber: true,
    },
    {
      label: "own work",
      value: ({ ownMs }) => ownMs ?? undefined,
      show: (line) => formatMs(line.ownMs),
      isNumber: true,
    },
    {
      label: "in collectives",
      value: (line) => inCollectives(line) ?? undefined,
      show: (line) => formatMs(inCollectives(line)),
      isNumber: true,
      title: "Waiting for other ranks, and moving bytes",
    },
    {
      label: "sent",
      value: ({ sentBytes }) => sentBytes ?? undefined,
      show: ({ sentBytes }) => formatBytes(sentBytes),
      isNumber: true,
      title: "Bytes of a step to all other ranks together",
    },
    {
      label: "calls",
      value: ({ collectives }) => collectives ?? undefined,
      show: ({ collectives }) => formatNumber(collectives),
      isNumber: true,
      title: "Collectives of a step",
    },
  ];
}

function StepBar({ line, longestMs }: { readonly line: RankLine; readonly longestMs: number }) {
  const { stepMs, ownMs, isSlow } = line;
  const width = (ms: number | null): string => `${longestMs > 0 ? (100 * (ms ?? 0)) / longestMs : 0}%`;
  return (
    <span class="step-bar" aria-hidden="true">
      <span class="whole" style={{ width: width(stepMs) }} />
      <span class={isSlow ? "own slow-bar" : "own"} style={{ width: width(ownMs) }} />
    </span>
  );
}

function inCollectives({ stepMs, ownMs }: RankLine): number | null {
  return stepMs === null || ownMs === null ? null : Math.max(0, stepMs - ownMs);
}

function csvOf(ranks: readonly RankLine[]): string {
  return toCsv(
    ["rank", "host", "process", "device", "steps", "step ms", "own ms", "sent bytes", "collectives", "slow"],
    ranks.map(({ rank, host, pid, device, steps, stepMs, ownMs, sentBytes, collectives, isSlow }) => [
      ...[rank, host, pid, device, steps, stepMs, ownMs, sentBytes, collectives],
      isSlow ? 1 : 0,
    ]),
  );
}

function formatMs(value: number | null | undefined): string {
  return formatDuration(typeof value === "number" ? value / 1000 : value);
}
