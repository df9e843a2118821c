/** Learning: loss and learning rate by step, and the quality of predictions. */

import { useCallback, useMemo, useRef, useState } from "preact/hooks";
import { Chart, type ChartHandle } from "../charts/chart.js";
import type { ChartMark, ChartSeries } from "../charts/chart-options.js";
import { download, Figure, fileName, pictureAction } from "../charts/figure.js";
import { lookOf, type SeriesLook } from "../charts/palette.js";
import { smooth } from "../charts/smoothing.js";
import { toCsv } from "../tables/csv.js";
import { formatCount, formatNumber } from "../tables/format.js";
import type { RunDetail, StepTable } from "../wire.js";
import { languageOf } from "./language.js";
import { Perplexity, Samples } from "./language-view.js";
import { epochsOf, foldsOf } from "./predictions.js";
import { PredictionFigures } from "./predictions-view.js";
import { StepChart } from "./step-chart.js";
import type { StepTables } from "./step-tables.js";
import { foldStarts } from "./steps.js";

export interface LearningViewProps {
  readonly detail: RunDetail;
  readonly others: ReadonlyMap<string, RunDetail>;
  readonly tables: StepTables;
  readonly looks: ReadonlyMap<string, SeriesLook>;
}

export function LearningView({ detail, others, tables, looks }: LearningViewProps) {
  const [isLog, setLog] = useState(false);
  const [weight, setWeight] = useState(0);
  const unknown = (tables.whole.get(detail.name)?.columns.notFinite ?? []).reduce(
    (sum: number, count) => sum + (count ?? 0),
    0,
  );
  const marks = useMarks(detail, tables.whole.get(detail.name));
  const language = useMemo(() => languageOf(detail.metrics), [detail.metrics]);
  const lossLines = useCallback(
    ({ columns }: StepTable, { colour, dash }: SeriesLook, run: string, isAlone: boolean): ChartSeries[] => {
      const label = isAlone ? "loss" : run;
      const band = run === detail.name ? { low: columns.lossMin, high: columns.lossMax } : undefined;
      const line = { label, colour, dash, values: columns.loss, ...(band && { band }) };
      if (weight === 0) return [line];
      const faint = { ...line, label: `${label} unsmoothed`, isFaint: true };
      return [faint, { label, colour, dash, values: smooth(columns.loss, weight, columns.fold) }];
    },
    [weight, detail.name],
  );
  const rateLines = useCallback(
    ({ columns }: StepTable, { colour, dash }: SeriesLook, run: string, isAlone: boolean): ChartSeries[] => [
      { label: isAlone ? "learning rate" : run, colour, dash, values: columns.lr },
    ],
    [],
  );
  return (
    <div class="grid">
      <StepChart
        title="Loss by step"
        caption="The training loss of each step. The band extends from the min. to the max. loss of the steps of each point."
        hint="The lower the loss, the better the model fits its training data. With more steps than points, the line is their mean and the band shows the outliers. Drag or use the wheel to zoom, double-click to show everything. Smoothing averages each point with earlier ones."
        run={detail.name}
        tables={tables}
        looks={looks}
        linesOf={lossLines}
        format={formatNumber}
        marks={marks}
        isLog={isLog}
        isWide
        height={300}
        noData="This run recorded no losses."
        onDraw={() => performance.mark("inspector:loss-drawn")}
        controls={
          <>
            <label>
              <input
                type="checkbox"
                checked={isLog}
                onChange={(event) => setLog(event.currentTarget.checked)}
              />
              Log scale
            </label>
            <label>
              Smoothing
              <input
                type="range"
                min="0"
                max="0.99"
                step="0.01"
                value={weight}
                onInput={(event) => setWeight(Number(event.currentTarget.value))}
              />
              <output>{weight === 0 ? "off" : weight.toFixed(2)}</output>
            </label>
            {unknown > 0 ? (
              <span class="quiet">{formatCount(unknown)} steps without a finite loss are omitted</span>
            ) : null}
          </>
        }
      />
      {language ? <Perplexity detail={detail} language={language} others={others} looks={looks} /> : null}
      <StepChart
        title="Learning rate"
        caption="The learning rate of each step; no unit."
        hint="It follows the schedule. If the loss jumps when the rate rises, use a lower rate."
        run={detail.name}
        tables={tables}
        looks={looks}
        linesOf={rateLines}
        format={formatNumber}
        startsAtZero
      />
      <EpochLoss detail={detail} />
      {language ? (
        <Samples detail={detail} language={language} others={others} looks={looks} />
      ) : (
        <PredictionFigures detail={detail} others={others} looks={looks} />
      )}
    </div>
  );
}

/** Marks the starts of folds and the incidents. */
function useMarks({ incidents }: RunDetail, table: StepTable | undefined): readonly ChartMark[] {
  return useMemo(() => {
    const starts = table ? foldStarts(table) : [];
    const folds = starts.length > 1 ? starts : [];
    return [
      ...folds.map(({ step, fold }) => ({ at: step, label: `fold ${fold + 1}` })),
      ...incidents.map(({ step, kind }) => ({ at: step, label: kind, isIncident: true })),
    ].sort((a, b) => a.at - b.at);
  }, [incidents, table]);
}

/** The mean loss of each epoch, one line per fold, and the test loss of each fold. */
function EpochLoss({ detail }: { readonly detail: RunDetail }) {
  const chart = useRef<ChartHandle>(null);
  const { x, series } = useMemo(() => epochLines(detail), [detail.metrics, detail.results]);
  const title = "Loss by epoch";
  const saveCsv = (): void => {
    const rows = x.map((epoch, index) => [epoch, ...series.map(({ values }) => values[index])]);
    download(
      fileName(detail.name, `${title}.csv`),
      toCsv(["epoch", ...series.map(({ label }) => label)], rows),
    );
  };
  return (
    <Figure
      title={title}
      caption="The mean training loss of each epoch. Of a job in folds: by fold, and dots are the fold's test loss."
      hint="A test loss far above the training loss means overfitting."
      empty={
        x.length === 0 ? "No completed epoch yet: its mean loss is written to metrics.jsonl." : undefined
      }
      actions={[
        pictureAction(chart, detail.name, title),
        { label: "CSV", title: "Save these figures", run: saveCsv },
      ]}
    >
      <Chart title={title} x={x} xLabel="epoch" series={series} format={formatNumber} handle={chart} />
    </Figure>
  );
}

function epochLines({ metrics, results }: RunDetail): { x: number[]; series: ChartSeries[] } {
  const epochs = epochsOf(metrics);
  const x = [...new Set(epochs.map(({ epoch }) => epoch + 1))].sort((a, b) => a - b);
  const folds = [...new Set(epochs.map(({ fold }) => fold))].sort((a, b) => a - b);
  const tests = foldsOf(metrics, results);
  const hasFolds = metrics.some((record) => typeof record["fold"] === "number");
  const series = folds.flatMap((fold, index): ChartSeries[] => {
    const byEpoch = new Map(
      epochs.filter((point) => point.fold === fold).map(({ epoch, loss }) => [epoch + 1, loss]),
    );
    const look = lookOf(index);
    const test = tests.find((candidate) => candidate.fold === fold)?.loss;
    const last = Math.max(...byEpoch.keys());
    const label = hasFolds ? `fold ${fold + 1}` : "training loss";
    const line = { ...look, label, values: x.map((epoch) => byEpoch.get(epoch) ?? null) };
    if (test === undefined) return [line];
    const dots = x.map((epoch) => (epoch === last ? test : null));
    return [line, { colour: look.colour, label: `fold ${fold + 1}, test`, values: dots, isDots: true }];
  });
  return { x, series };
}
