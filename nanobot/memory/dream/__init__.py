"""Dream: what turns entries of the history, and daily notes, into lasting facts.

A run (`dream`) reads what is new in batches (`reading`). For each batch the model first extracts,
then integrates (`learning`); code decides what of the one may become a memory, and what the other
may change (`phases`). What is to be done is written down before any of it is (`state`), so that a
crash neither repeats nor loses anything, and then done. The model never writes a file, and what it
says is held against the raw messages: it may repeat what a web page told it to say.
"""

from nanobot.memory.dream.dream import Dream, DreamSchedule
from nanobot.memory.dream.learning import DreamLimits
from nanobot.memory.dream.state import DreamReport

__all__ = ["Dream", "DreamLimits", "DreamReport", "DreamSchedule"]
