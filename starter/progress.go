package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/internal/release"
)

// progress is what is shown of a running sync. It is pure: made of a look, compared with the one before, drawn.
type progress struct {
	step    string
	digest  string
	waiting string
	waves   []waveProgress
	trouble string // why the step at hand is tried again
	note    string // what is wrong with the surroundings, such as no worker
	// run is the sync that is shown, where several may come one after the other; ended is the last sync that has ended,
	// and end what became of it.
	run, ended, end string
	// sentence: step is a state of its own and no step of a sync.
	sentence bool
}

type waveProgress struct {
	number   int32
	phase    v1alpha1.WavePhase
	objects  int
	applied  int
	blockers []string
	since    []string // for how long each blocks, where that is known
	more     int      // blockers that are not listed
	final    bool     // it is the final gate behind the wave that is blocked
}

// progressOf puts together what a look saw. The workflow knows the order and the phases; the Release's status knows how
// many objects were applied and what blocks; the step at hand knows how far it is.
func progressOf(l look) progress {
	out := progress{step: "starting"}
	if l.query != nil {
		out.step, out.digest, out.waiting = orElse(l.query.Step, out.step), l.query.Digest, l.query.WaitingFor
		for _, wave := range l.query.Waves {
			out.waves = append(out.waves, waveProgress{number: wave.Wave, phase: wave.Phase, objects: wave.Objects})
		}
	}
	if l.status != nil {
		out.addStatus(l.status, l.query == nil)
	}
	for i := range out.waves {
		if out.waves[i].phase == v1alpha1.WaveApplied {
			out.waves[i].applied = out.waves[i].objects
		}
	}
	if l.step != nil {
		out.addStep(l.step)
	}
	if l.loop != nil {
		out.addLoop(l.loop)
	}
	return out
}

// addLoop adds which sync is shown, and what the request waits for.
func (p *progress) addLoop(l *loopLook) {
	p.run = l.syncRun()
	if p.run == "" {
		p.step, p.waiting = "waiting for a sync that serves request "+l.id, l.waitsFor()
	}
	if l.last != nil && l.last.FinishedAt != nil {
		p.ended, p.end = l.last.RunID, attemptResult(l.last)
	}
	if p.run != "" && l.answer == nil && l.loop != nil && slices.Contains(l.loop.Waiting, l.id) {
		p.note = "this sync began before your request, which the next one serves"
	}
}

// addStatus adds the word of the Release's status; alone says that the workflow gave none.
func (p *progress) addStatus(status *v1alpha1.ReleaseStatus, alone bool) {
	if p.digest == "" && status.LastAttempted != nil {
		p.digest = status.LastAttempted.Digest
	}
	for _, wave := range status.Waves {
		i := slices.IndexFunc(p.waves, func(known waveProgress) bool { return known.number == wave.Wave })
		if i < 0 && !alone {
			continue
		}
		if i < 0 {
			p.waves = append(p.waves, waveProgress{number: wave.Wave, phase: wave.Phase, objects: int(wave.Objects)})
			i = len(p.waves) - 1
		}
		known := &p.waves[i]
		known.applied = int(wave.Applied)
		if wave.Phase == v1alpha1.WaveFailed {
			known.phase = wave.Phase
		}
		known.final = wave.Phase == v1alpha1.WaveApplied
		if known.phase == v1alpha1.WaveWaiting || known.final {
			for _, blocker := range wave.BlockedBy {
				known.blockers = append(known.blockers, oneLine(blocker.Object+": "+blocker.Message))
			}
			known.more = max(int(wave.BlockedByTotal)-len(wave.BlockedBy), 0)
		}
	}
}

// addStep adds how far the step at hand is.
func (p *progress) addStep(step *pendingStep) {
	if !slices.ContainsFunc(p.waves, func(wave waveProgress) bool { return len(wave.blockers) > 0 }) {
		p.trouble = oneLine(step.lastFailure) // where a wave is blocked, its blockers say the same
	}
	if p.step == "starting" {
		p.step = step.id
	}
	done := step.progress
	if done.Total > 0 && done.Wave == nil {
		p.step += fmt.Sprintf(" %d/%d", done.Done, done.Total)
	}
	for i := range p.waves {
		wave := &p.waves[i]
		if done.Wave != nil && wave.number == *done.Wave && wave.phase == v1alpha1.WaveApplying {
			wave.applied = max(wave.applied, min(done.Done, wave.objects))
		}
	}
}

// headline is the step and what it waits for.
func (p progress) headline() string {
	text := p.step
	if p.waiting != "" {
		text += ": " + oneLine(p.waiting)
	}
	return text
}

// barWidth is how many cells a bar has.
const barWidth = 24

// maxBlockers bounds the blockers that are drawn of a wave.
const maxBlockers = 5

// draw is the live view: lines of at most width characters, and at most height lines.
func (p progress) draw(title string, elapsed time.Duration, width, height int) []string {
	lines := []string{
		fmt.Sprintf("%s  %s", title, elapsed.Round(time.Second)),
		"  " + p.headline(),
	}
	if p.digest != "" {
		lines[0] = fmt.Sprintf("%s  render %s  %s", title, release.ShortDigest(p.digest), elapsed.Round(time.Second))
	}
	for _, wave := range p.waves {
		lines = append(lines, wave.draw()...)
	}
	if p.trouble != "" {
		lines = append(lines, "  last try: "+p.trouble)
	}
	if p.note != "" {
		lines = append(lines, "  "+p.note)
	}
	if height > 3 && len(lines) > height {
		hidden := len(lines) - height + 1
		lines = append(lines[:height-1], fmt.Sprintf("  … %s", release.Count(hidden, "more line")))
	}
	for i := range lines {
		lines[i] = fit(lines[i], width)
	}
	return lines
}

func (w waveProgress) draw() []string {
	lines := []string{fmt.Sprintf("  wave %-4d %s %*d/%d  %s", w.number, w.bar(), len(fmt.Sprint(w.objects)), w.applied, w.objects, w.phase)}
	for i := range w.blockers {
		if i == maxBlockers {
			break
		}
		by := "blocked by "
		if w.final {
			by = "final gate blocked by "
		}
		lines = append(lines, "            "+by+w.blocker(i))
	}
	if more := len(w.blockers) + w.more - maxBlockers; more > 0 && len(w.blockers) > 0 {
		lines = append(lines, fmt.Sprintf("            and %d more", more))
	}
	return lines
}

// blocker is what blocks, and for how long.
func (w waveProgress) blocker(i int) string {
	if i >= len(w.since) {
		return w.blockers[i]
	}
	return fmt.Sprintf("%s (%s)", w.blockers[i], w.since[i])
}

func (w waveProgress) bar() string {
	full := 0
	if w.objects > 0 {
		full = w.applied * barWidth / w.objects
	}
	full = min(max(full, 0), barWidth)
	return "[" + strings.Repeat("#", full) + strings.Repeat("-", barWidth-full) + "]"
}

// fit cuts a line to a width, so that it stays one line of the terminal.
func fit(line string, width int) string {
	runes := []rune(clean(line))
	if width < 2 || len(runes) < width {
		return string(runes)
	}
	return string(runes[:width-2]) + "…"
}

// changes says in lines what differs from the progress before: steps, phases, blockers, troubles. Counts of objects are
// no news of their own.
func (p progress) changes(before progress) []string {
	var lines []string
	if p.run != before.run {
		lines, before = p.turn(before), progress{note: before.note}
	}
	if p.digest != before.digest && p.digest != "" {
		lines = append(lines, "render "+release.ShortDigest(p.digest))
	}
	if now := p.headline(); withoutCount(now) != withoutCount(before.headline()) {
		if !p.sentence {
			now = withoutCount(now)
		}
		if !p.sentence {
			now = "step " + now
		}
		lines = append(lines, now)
	}
	for _, wave := range p.waves {
		lines = append(lines, wave.changes(before.wave(wave.number))...)
	}
	if p.trouble != before.trouble && p.trouble != "" {
		lines = append(lines, "last try: "+p.trouble)
	}
	if p.note != before.note && p.note != "" {
		lines = append(lines, p.note)
	}
	return lines
}

// turn says that the sync that was shown has ended, and which one is shown now.
func (p progress) turn(before progress) []string {
	var lines []string
	if before.run != "" && before.run == p.ended {
		lines = append(lines, fmt.Sprintf("sync run %s ended: %s", p.ended, p.end))
	}
	if p.run != "" {
		lines = append(lines, "sync run "+p.run)
	}
	return lines
}

func (p progress) wave(number int32) waveProgress {
	for _, wave := range p.waves {
		if wave.number == number {
			return wave
		}
	}
	return waveProgress{number: number, phase: v1alpha1.WavePending}
}

func (w waveProgress) changes(before waveProgress) []string {
	var lines []string
	if w.phase != before.phase {
		lines = append(lines, fmt.Sprintf("wave %d %s (%d/%d objects applied)", w.number, strings.ToLower(string(w.phase)), w.applied, w.objects))
	}
	for i, blocker := range w.blockers {
		if !slices.Contains(before.blockers, blocker) {
			what := fmt.Sprintf("wave %d", w.number)
			if w.final {
				what = release.GateName(w.number, true)
			}
			lines = append(lines, fmt.Sprintf("%s is blocked by %s", what, w.blocker(i)))
		}
	}
	return lines
}

// withoutCount drops the " 3/12" behind a step.
func withoutCount(text string) string {
	words := strings.Split(text, " ")
	last := words[len(words)-1]
	if a, b, ok := strings.Cut(last, "/"); ok && len(words) > 1 && digits(a) && digits(b) {
		words = words[:len(words)-1]
	}
	return strings.Join(words, " ")
}

func digits(text string) bool {
	return text != "" && strings.Trim(text, "0123456789") == ""
}

func orElse(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}
