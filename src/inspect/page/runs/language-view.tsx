/** The learning of a language model: the perplexity of evaluations by step, and texts that it has written. */

import { useMemo, useRef, useState } from "preact/hooks";
import { Chart, type ChartHandle } from "../charts/chart.js";
import type { ChartSeries } from "../charts/chart-options.js";
import { download, Figure, fileName, pictureAction } from "../charts/figure.js";
import { lookOf, type SeriesLook } from "../charts/palette.js";
import { toCsv } from "../tables/csv.js";
import { formatCount, formatNumber } from "../tables/format.js";
import type { RunDetail } from "../wire.js";
import { type LanguageFigures, languageOf, type SampleText } from "./language.js";

export interface LanguageViewProps {
  readonly detail: RunDetail;
  readonly language: LanguageFigures;
  readonly others: ReadonlyMap<string, RunDetail>;
  readonly looks: ReadonlyMap<string, SeriesLook>;
}

/** One line per run. */
export function Perplexity({ detail, language, others, looks }: LanguageViewProps) {
  const chart = useRef<ChartHandle>(null);
  const title = "Perplexity";
  const { x, series } = useMemo(() => {
    const runs = [
      { name: detail.name, evaluations: language.evaluations },
      ...[...others].map(([name, { metrics }]) => ({
        name,
        evaluations: languageOf(metrics)?.evaluations ?? [],
      })),
    ].filter(({ evaluations }) => evaluations.length > 0);
    const steps = runs.flatMap(({ evaluations }) => evaluations.map(({ step }) => step));
    const x = [...new Set(steps)].sort((a, b) => a - b);
    const series = runs.map(({ name, evaluations }): ChartSeries => {
      const byStep = new Map(evaluations.map(({ step, perplexity }) => [step, perplexity]));
      const { colour, dash } = looks.get(name) ?? lookOf(0);
      const values = x.map((step) => byStep.get(step) ?? null);
      return { label: runs.length > 1 ? name : "perplexity", colour, dash, values };
    });
    return { x, series };
  }, [detail.name, language, others, looks]);
  const saveCsv = (): void =>
    download(
      fileName(detail.name, `${title}.csv`),
      toCsv(
        ["step", ...series.map(({ label }) => label)],
        x.map((step, index) => [step, ...series.map(({ values }) => values[index])]),
      ),
    );
  return (
    <Figure
      title={title}
      caption="The perplexity of each evaluation, on texts that the model is not trained on. Log scale."
      hint="e to the power of the mean loss of a token: 8 means that the model is as unsure as between 8 equally likely tokens. If it rises while the training loss falls, the model learns its texts by heart: train for fewer epochs."
      empty={x.length === 0 ? "No evaluation: pass --eval-data, or a share with --held-out." : undefined}
      actions={[
        pictureAction(chart, detail.name, title),
        { label: "CSV", title: "Save these figures", run: saveCsv },
      ]}
    >
      <Chart title={title} x={x} series={series} format={formatNumber} isLog spansGaps handle={chart} />
    </Figure>
  );
}

/** Shown at first. */
const newest = 6;

export function Samples({ detail, language }: LanguageViewProps) {
  const { samples } = language;
  const prompts = useMemo(() => [...new Set(samples.map(({ prompt }) => prompt))], [samples]);
  const [chosen, setChosen] = useState<string | undefined>(undefined);
  const [isWhole, setWhole] = useState(false);
  const selected = samples.filter(({ prompt }) => chosen === undefined || prompt === chosen);
  const shown = isWhole ? selected : selected.slice(0, newest);
  const title = "Samples";
  const saveCsv = (): void =>
    download(
      fileName(detail.name, `${title}.csv`),
      toCsv(
        ["step", "prompt", "text"],
        selected.map(({ step, prompt, text }) => [step, prompt, text]),
      ),
    );
  return (
    <Figure
      title={title}
      caption="Texts that the model wrote after each evaluation, the newest first."
      empty={samples.length === 0 ? "No samples: pass a prompt with --sample." : undefined}
      actions={[{ label: "CSV", title: "Save these texts", run: saveCsv }]}
      controls={
        prompts.length > 1 ? (
          <label>
            For
            <select
              value={chosen ?? ""}
              onChange={({ currentTarget: { value } }) => setChosen(value === "" ? undefined : value)}
            >
              <option value="">all prompts</option>
              {prompts.map((prompt) => (
                <option key={prompt} value={prompt}>
                  {prompt.slice(0, 60)}
                </option>
              ))}
            </select>
          </label>
        ) : null
      }
    >
      <ol class="samples">
        {shown.map((sample) => (
          <Sample key={`${sample.step} ${sample.prompt}`} {...sample} />
        ))}
      </ol>
      {shown.length < selected.length ? (
        <button type="button" class="small" onClick={() => setWhole(true)}>
          Show all {formatCount(selected.length)}
        </button>
      ) : null}
    </Figure>
  );
}

function Sample({ step, prompt, text }: SampleText) {
  return (
    <li>
      <span class="quiet">step {formatCount(step)}</span>
      <p>
        <span class="prompt">{prompt}</span>
        {text}
      </p>
    </li>
  );
}
