"""The declared default for files that bring no template: ChatML, the most common notation."""

CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)

#: A model that never saw ChatML writes its end-of-turn token as plain text, and goes on: here it ends the answer.
END_TEXTS = ("<|im_end|>",)

MISSING = "the model brings no chat template; ChatML is used, which it may not have been trained on"
