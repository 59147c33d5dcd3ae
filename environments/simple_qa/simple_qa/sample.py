"""Sixty questions that ship with the package, so that it can be tried without a network. Owns them; each has one short
answer that does not change with time. They are far easier than SimpleQA's and say little about a model."""

from __future__ import annotations

from collections.abc import Iterator

_FACTS = """
What is the chemical symbol of tungsten? | W
Which element has the atomic number 79? | Gold
How many protons does a carbon nucleus have? | 6
What is the SI unit of electrical resistance? | Ohm
Which planet of the solar system has the largest diameter? | Jupiter
Which moon is the largest of Saturn's? | Titan
In which year did humans first walk on the Moon? | 1969
Who was the second person to walk on the Moon? | Buzz Aldrin
What gas makes up most of the Earth's atmosphere? | Nitrogen
What is the hardest natural mineral on the Mohs scale? | Diamond
At how many degrees Celsius does pure water freeze at sea level? | 0
Who published the theory of general relativity? | Albert Einstein
Who discovered penicillin in 1928? | Alexander Fleming
Which physicist is the SI unit of radioactivity named after? | Henri Becquerel
What is the name of the process by which plants turn light into chemical energy? | Photosynthesis
How many chromosomes does a healthy human body cell have? | 46
Which organ of the human body makes insulin? | Pancreas
What is the longest bone of the human body? | Femur
How many hearts does an octopus have? | 3
What is the largest living species of animal? | Blue whale
Which bird lays the largest eggs of all living species? | Ostrich
How many legs does a spider have? | 8
What is a group of lions called? | Pride
What is the capital of Australia? | Canberra
What is the capital of Mongolia? | Ulaanbaatar
What is the capital of Burkina Faso? | Ouagadougou
What is the capital of Slovenia? | Ljubljana
Which river flows through Budapest and Vienna? | Danube
What is the longest river of Africa? | Nile
What is the highest mountain above sea level? | Mount Everest
Which ocean is the largest? | Pacific Ocean
In which country does Lake Balaton lie? | Hungary
Which strait separates Spain from Morocco? | Strait of Gibraltar
What is the smallest sovereign state by area? | Vatican City
On which continent does the Atacama Desert lie? | South America
What is the official currency of Japan? | Yen
In which year did the Berlin Wall fall? | 1989
In which year did the French Revolution begin? | 1789
Who was the first president of the United States? | George Washington
Which queen of England reigned from 1558 to 1603? | Elizabeth I
Who was the first woman to win a Nobel Prize? | Marie Curie
In which city was Archduke Franz Ferdinand shot in 1914? | Sarajevo
Which Norwegian led the first expedition to reach the South Pole? | Roald Amundsen
Which treaty of 1992 founded the European Union? | Maastricht Treaty
Who wrote the novel "Moby-Dick"? | Herman Melville
Who wrote the play "Hamlet"? | William Shakespeare
Who wrote "One Hundred Years of Solitude"? | Gabriel García Márquez
Which epic by Homer tells of the journey home of a king of Ithaca? | Odyssey
Who painted "Guernica"? | Pablo Picasso
Who painted the ceiling of the Sistine Chapel? | Michelangelo
Who composed the opera "The Magic Flute"? | Wolfgang Amadeus Mozart
How many symphonies did Beethoven complete? | 9
How many strings does a violin have? | 4
How many players of one team are on the field in a football (soccer) match? | 11
On how many squares is chess played? | 64
Who proposed the imitation game as a test of machine intelligence in 1950? | Alan Turing
What is the smallest prime number? | 2
What is the sum of the inner angles of a triangle in a plane, in degrees? | 180
What is the Roman numeral for fifty? | L
Which logic gate gives a true output only if both of its two inputs are true? | AND gate
"""


def facts() -> Iterator[dict[str, object]]:
    """The rows, in the columns of SimpleQA."""
    for line in _FACTS.strip().splitlines():
        problem, answer = line.split(" | ")
        yield {"problem": problem, "answer": answer}
