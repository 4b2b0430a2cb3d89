"""Dream: what turns entries of the history, and daily notes, into lasting facts.

A run reads what is new in batches (`reading`). For each batch the model first extracts (`phase1`),
then integrates (`phase2`); code decides what of the one may become a memory (`judging`), and what
the other may change. What is to be done is written down before any of it is (`state`), so that a
crash neither repeats nor loses anything, and then done (`writing`). The model never writes a file,
and what it says is held against the raw messages: it may repeat what a web page told it to say.
"""

from nanobot.memory.dream.dream import Dream
from nanobot.memory.dream.schedule import DreamSchedule
from nanobot.memory.dream.state import DreamReport
from nanobot.memory.dream.thinking import DreamLimits

__all__ = ["Dream", "DreamLimits", "DreamReport", "DreamSchedule"]
