// A tone for each scan: people look at the goods, not at the screen.
const TONES = { good: { frequency: 1400, seconds: 0.09 }, bad: { frequency: 220, seconds: 0.5 } }; // hertz
const VOLUME = 0.2; // of 1

let audio;

export function sound(kind) {
  const { frequency, seconds } = TONES[kind];
  audio ??= new AudioContext();
  audio.resume(); // a phone lets pages begin only after a touch
  const tone = new OscillatorNode(audio, { type: "square", frequency });
  tone.connect(new GainNode(audio, { gain: VOLUME })).connect(audio.destination);
  tone.start();
  tone.stop(audio.currentTime + seconds);
}
