"""A Django project with its admin: migrations forward and back, and the admin's pages. Prints `step<TAB>ok` or the error."""

import os
import re
import subprocess
import sys
from pathlib import Path

PORT = os.environ["SUITE_PORT"]
DATABASE = (
    "DATABASES = {'default': {'ENGINE': 'django.db.backends.postgresql', 'NAME': 'holdfast', 'USER': 'holdfast',"
    f" 'HOST': '127.0.0.1', 'PORT': '{PORT}'}}}}\nALLOWED_HOSTS = ['testserver']\n"
)
MODELS = """
from django.contrib import admin
from django.db import models

class Author(models.Model):
    name = models.CharField(max_length=50, unique=True)
    born = models.DateField(null=True)

class Book(models.Model):
    author = models.ForeignKey(Author, on_delete=models.CASCADE)
    title = models.CharField(max_length=80)
    price = models.DecimalField(max_digits=8, decimal_places=2)
    added = models.DateTimeField(auto_now_add=True)

admin.site.register(Author)
admin.site.register(Book)
"""
PAGES = """
from django.test import Client
from django.contrib.auth.models import User
from app.models import Author, Book
User.objects.create_superuser('root', 'r@example.com', 'pass')
client = Client()
assert client.login(username='root', password='pass')
assert client.post('/admin/app/author/add/', {'name': 'Ann', 'born': '1970-01-01'}).status_code == 302
author = Author.objects.get(name='Ann')
assert client.post('/admin/app/book/add/', {'author': author.pk, 'title': 'One', 'price': '9.50'}).status_code == 302
for page in ['/admin/', '/admin/app/book/', f'/admin/app/author/{author.pk}/change/', '/admin/auth/user/']:
    assert client.get(page).status_code == 200, page
assert client.post(f'/admin/app/author/{author.pk}/delete/', {'post': 'yes'}).status_code == 302
assert Book.objects.count() == 0
"""


def manage(*words, text=None):
    return subprocess.run([sys.executable, "manage.py", *words], capture_output=True, text=True, input=text, timeout=300)


def report(step, done):
    lines = (done.stderr.strip() or done.stdout.strip() or "failed").splitlines()
    print(f"{step}\t{'ok' if done.returncode == 0 else lines[-1]}", flush=True)


subprocess.run([sys.executable, "-m", "django", "startproject", "project", "."], check=True)
subprocess.run([sys.executable, "manage.py", "startapp", "app"], check=True)
settings = Path("project/settings.py")
text = re.sub(r"DATABASES = \{.*?\n\}\n", lambda _: DATABASE, settings.read_text(), flags=re.S)
settings.write_text(text.replace("INSTALLED_APPS = [", "INSTALLED_APPS = [\n    'app',").replace("ALLOWED_HOSTS = []\n", ""))
Path("app/models.py").write_text(MODELS)
report("makemigrations", manage("makemigrations", "app"))
for app in ["contenttypes", "auth", "admin", "sessions", "app"]:
    report(f"migrate {app}", manage("migrate", app))
report("check", manage("check", "--database", "default"))
report("inspectdb", manage("inspectdb"))
report("the admin", manage("shell", "-c", PAGES))
report("dumpdata", manage("dumpdata"))
report("flush", manage("flush", "--no-input"))
for app in ["app", "admin", "sessions", "auth"]:
    report(f"migrate {app} zero", manage("migrate", app, "zero"))
