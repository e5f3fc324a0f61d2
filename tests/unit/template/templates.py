"""Small templates of our own in the manner of the families, each with one peculiarity."""

CHATML_TOOLS = """\
{%- if tools %}<|im_start|>system
{% if messages[0].role == 'system' %}{{ messages[0].content + '\\n' }}{% endif %}Tools: {{ tools | tojson }}<|im_end|>
{% elif messages[0].role == 'system' %}<|im_start|>system
{{ messages[0].content }}<|im_end|>
{% endif %}
{%- for message in messages %}
{%- if message.role == 'assistant' and message.tool_calls %}<|im_start|>assistant
{{ message.content }}{% for call in message.tool_calls %}<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>{% endfor %}<|im_end|>
{% elif message.role == 'tool' %}<|im_start|>user
<tool_response>{{ message.content }}</tool_response><|im_end|>
{% elif message.role != 'system' %}<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% if enable_thinking is defined and not enable_thinking %}<think>

</think>

{% else %}<think>
{% endif %}{% endif %}"""

#: No system role, roles must alternate, the BOS token is written.
STRICT = """\
{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}
{%- for message in messages %}
{%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Roles must alternate') }}{% endif %}
<start>{{ 'model' if message['role'] == 'assistant' else message['role'] }}
{{ message['content'] | trim }}<end>
{% endfor %}
{%- if add_generation_prompt %}<start>model
{% endif %}"""

#: Drops what the system says without a word.
DEAF = "{% for m in messages if m.role in ('user', 'assistant') %}[{{ m.role }}] {{ m.content }}\n{% endfor %}"

#: Contents are lists of parts.
PARTS = "{% for m in messages %}[{{ m.role }}]{% for p in m.content %}{{ p['text'] }}{% endfor %}\n{% endfor %}"

#: Arguments of calls must be text, contents beside calls null.
TEXT_ARGUMENTS = """\
{% for m in messages %}{% if m.tool_calls and m.content is none %}
{%- set f = m.tool_calls[0].function %}CALL {{ f.name + f.arguments }}
{% elif m.role == 'tool' %}GOT {{ m.content }}
{% else %}{{ m.role + ': ' + m.content }}
{% endif %}{% endfor %}{% if tools %}{{ tools | tojson }}{% endif %}"""

#: Loops over tools without asking whether there are any.
TRUSTING = "{% for t in tools %}{{ t.function.name }}\n{% endfor %}{% for m in messages %}{{ m.content }}\n{% endfor %}"

#: The helpers of transformers: loop controls, the generation block, dates.
HELPERS = """\
{{ strftime_now('%d %b %Y') }}
{% for m in messages %}
{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{% endgeneration %}{% continue %}{% endif %}
{{ m | tojson }}
{% if loop.index > 3 %}{% break %}{% endif %}
{% endfor %}"""
