"""What a model is asked: first for a program, then for the answer in words.

The instructions are those of MathInstruct-like tuning data: a question alone is answered step by
step, and a question with the request for a program by Python that prints the answer.
"""

from __future__ import annotations

from uniproto.errors import invalid

PROGRAM_REQUEST = "Let's write a Python program to solve it."
_SHORTEST_STOP = 4


def program_instruction(question: str) -> str:
    """Program of thought: the question, and the request for a program.

    >>> program_instruction("What is 2 + 2?")
    "What is 2 + 2? Let's write a Python program to solve it."
    """
    return f"{question} {PROGRAM_REQUEST}"


def fill(template: str, instruction: str) -> str:
    """The prompt: the template with the instruction in it.

    >>> fill("Q: {instruction}\\nA:", "What is 2 + 2?")
    'Q: What is 2 + 2?\\nA:'
    """
    if "{instruction}" not in template:
        raise invalid(
            "template", "must hold {instruction}", repr(template), "Say where the question goes."
        )
    return template.replace("{instruction}", instruction)


def stop_strings(template: str) -> list[str]:
    """Where an answer ends even without an end-of-text token: at the next question's heading.

    >>> stop_strings("### Instruction:\\n{instruction}\\n\\n### Response:\\n")
    ['### Instruction:']
    """
    lines = template.partition("{instruction}")[0].strip().splitlines()
    heading = lines[-1].strip() if lines else ""
    return [heading] if len(heading) >= _SHORTEST_STOP else []
